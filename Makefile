# `make demo` and `make test` do all their set-up themselves: Python ≥ 3.11 is all they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compiled code is kept, also where the machine is set up not to keep it: workers and their processes share it
unexport PYTHONDONTWRITEBYTECODE
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all evidence lint format docs notebooks clean

$(VENV)/run.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP_FLAGS) -e '.[all]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	$(BIN)/pip install $(PIP_FLAGS) -e '.[dev]'
	$(BIN)/pip install $(PIP_FLAGS) --no-deps anchor-exp
	@touch $@

demo: $(VENV)/run.stamp
	$(BIN)/tefm demo

# types are checked beside the tests, which leave a core idle towards their end
test: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal; tests=$$?; wait $$! && exit $$tests

# every seed, fault and format, and all tables of the benchmarks
test-all: $(VENV)/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "all or not all" --hypothesis-profile whole -n auto --dist worksteal

# which stored results are those of today's code, and how long it takes to measure the others again
evidence: $(VENV)/dev.stamp
	PYTHONPATH=benchmarks $(BIN)/python -m tefm_bench.evidence

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# the outputs of the notebooks, made again
notebooks: $(VENV)/dev.stamp
	PYTHONWARNINGS=ignore $(BIN)/jupyter execute --inplace docs/examples/*.ipynb

clean:
	rm -rf site $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
