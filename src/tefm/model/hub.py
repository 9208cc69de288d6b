"""Bundles on the Hugging Face hub: upload a folder, download one. Only what the manifest lists is fetched."""

from __future__ import annotations

import glob
import json
import shutil
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from tefm.base.errors import ArtefactError, InputError, failing_as, first_line
from tefm.base.files import MANIFEST, is_whole, read_manifest, replacing
from tefm.language.smollm2 import cache_folder
from tefm.model.bundle import KIND

#: What the hub's library raises where a repository cannot be reached or changed.
FAILURES = (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, OSError)


def upload(
    folder: Path, name: str, *, private: bool = True, token: str | None = None, endpoint: str | None = None
) -> str:
    """Upload a bundle as the model `name` (owner/model), in place of what is there; the address of the commit."""
    read_manifest(folder, KIND)
    api = HfApi(endpoint=endpoint, token=token)
    remedy = "log in with `hf auth login` or give a token that may write, and a name like owner/model"
    with failing_as(FAILURES, "the model cannot be uploaded: {reason}", value=name, remedy=remedy):
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, folder_path=folder, delete_patterns=["*"], commit_message="Upload a tefm model"
        )
    return str(commit.commit_url)


def download(name: str, *, revision: str | None = None, token: str | None = None, endpoint: str | None = None) -> Path:
    """The folder of a bundle: a local one as it is, a model of the hub fetched once per commit."""
    if Path(name).is_dir():
        return Path(name)
    api = HfApi(endpoint=endpoint, token=token)
    try:
        commit = str(api.model_info(name, revision=revision).sha)
        folder = cache_folder() / "hub" / name.replace("/", "--") / commit
        if is_whole(folder, KIND):
            return folder
        with replacing(folder, ours=lambda _: True) as temporary:  # a cache is ours to replace
            api.hf_hub_download(name, MANIFEST, revision=commit, local_dir=temporary)
            parts = json.loads((temporary / MANIFEST).read_text(encoding="utf-8"))["parts"]
            listed = [glob.escape(part) for part in (MANIFEST, *parts)]
            api.snapshot_download(name, revision=commit, local_dir=temporary, allow_patterns=listed)
            shutil.rmtree(temporary / ".cache", ignore_errors=True)  # the library's own notes
            read_manifest(temporary, KIND)
    except ArtefactError:
        raise
    except FAILURES as error:
        raise InputError(
            f"no such folder, and the hub has no such model for you: {first_line(error)}",
            value=name,
            remedy="give a folder or a name like owner/model; a private model needs `hf auth login` or a token",
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtefactError("the manifest is damaged", file=name, remedy="upload the model again") from error
    return folder
