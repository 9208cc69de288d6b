# The server of models. `docker build --target server -t tefm .` has no model of its own; the last stage adds the demo's,
# which takes some minutes to fit.
FROM python:3.11-slim AS server
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
# the build of torch without CUDA: a tenth of the size
RUN pip install --index-url https://download.pytorch.org/whl/cpu torch==2.13.0
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY src src
RUN pip install -c constraints.txt '.[serve]'
RUN useradd --create-home --uid 10001 tefm
USER tefm
WORKDIR /home/tefm
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
# open to other machines, so it needs keys: mount a file with one per line
ENTRYPOINT ["tefm", "serve", "--host", "0.0.0.0", "--port", "8000", "--api-key-file", "/run/secrets/tefm_keys"]
CMD ["/models/model"]

FROM server AS fitted
USER root
RUN pip install -c /build/constraints.txt '/build[baselines,plots]'
RUN tefm demo --save /models/demo --out /models/demo.html

FROM server AS demo
COPY --from=fitted /models /models
CMD ["/models/demo"]
