"""The command that serves models over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tefm.base.errors import MissingExtraError
from tefm.base.progress import shown
from tefm.cli.app import DeviceOption, app


@app.command(epilog="Example: tefm serve model --port 8000")
def serve(
    models: Annotated[list[str], typer.Argument(help="folders of models; NAME=FOLDER gives one another name")],
    host: Annotated[str, typer.Option(help="address to listen on; without keys, loopback only")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0 takes a free one", min=0, max=65_535)] = 8_000,
    api_key_file: Annotated[Path | None, typer.Option(help="file with one API key per line")] = None,
    max_rows: Annotated[int, typer.Option(help="rows of one request, at most", min=1)] = 1_000,
    max_explanations: Annotated[int, typer.Option(help="sequences explained per request, at most", min=1)] = 10,
    max_megabytes: Annotated[float, typer.Option(help="size of one request, at most", min=0.001)] = 4.0,
    queue: Annotated[int, typer.Option(help="requests that may wait; a further one gets 429", min=1)] = 256,
    timeout: Annotated[float, typer.Option(help="seconds until a prediction is given up", min=0.001)] = 30.0,
    explain_timeout: Annotated[float, typer.Option(help="the same for an explanation", min=0.001)] = 120.0,
    batch_ms: Annotated[
        float, typer.Option(help="how long a prediction waits for others to share a batch", min=0)
    ] = 3.0,
    drain: Annotated[float, typer.Option(help="seconds between SIGTERM and the end of listening", min=0)] = 1.0,
    remember: Annotated[bool, typer.Option(help="keep the answers to prompts, which come again and again")] = True,
    access_log: Annotated[bool, typer.Option(help="log a line per request, without its contents")] = True,
    device: DeviceOption = None,
) -> None:
    """Serve models over HTTP: predictions, explanations, and a page to try them at /.

    TLS is the business of a proxy in front. SIGTERM finishes what was accepted.
    """
    try:
        from tefm.serve.protect import Keys, check_host
        from tefm.serve.server import load_models, run
        from tefm.serve.settings import ServeSettings
    except ImportError as error:
        raise MissingExtraError(f"serving needs {error.name}", remedy="pip install 'tefm[serve]'") from error

    settings = ServeSettings.checked(
        {
            "max_rows": max_rows,
            "max_explanations": max_explanations,
            "max_bytes": max(1_024, int(max_megabytes * (1 << 20))),
            "queue": queue,
            "timeout": timeout,
            "explain_timeout": explain_timeout,
            "batch_milliseconds": batch_ms,
            "drain": drain,
        }
    )
    keys = Keys([]) if api_key_file is None else Keys.read(api_key_file)
    check_host(host, keys)  # before anything is loaded
    with shown():
        loaded = load_models(models, remember=remember, device=device)
    run(loaded, host=host, port=port, settings=settings, keys=keys, access_log=access_log)
