"""`macs-hf push FOLDER REPO`: what a run left on disk goes to the Hub, in one commit."""

import argparse
from pathlib import Path

from ..report.run_folder import locked_folder
from .process import running


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    with running("push", options):
        from ..publishing.push import push_folder

        if not Path(options.folder).is_dir():
            raise FileNotFoundError(f"There is no folder {options.folder!r} to push.")
        with locked_folder(options.folder):
            commit = push_folder(
                options.folder,
                options.repo,
                private=options.private,
                revision=options.revision,
                allow_chance_level=options.allow_chance_level,
            )
        print("pushed:", commit.repo_url)
        if options.space:
            from ..publishing.push import push_space

            repo_id = commit.repo_url.repo_id
            print("Space:", push_space(repo_id, options.folder, private=options.private))
            if options.private:
                print("A private model is read with a token: add one as the secret HF_TOKEN in the Space's settings.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="macs-hf push",
        description="Push the model, report, pictures and card of a run's folder, in one commit.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="where the model was saved")
    parser.add_argument("repo", metavar="REPO", help="user/name; created if it does not exist")
    parser.add_argument("--private", action="store_true", default=None, help="make it private")
    parser.add_argument("--revision", help="branch; created if it does not exist")
    parser.add_argument("--space", action="store_true", help="also push a Space of the same name, which serves it")
    parser.add_argument(
        "--allow_chance_level", action="store_true", help="push a model whose accuracy is not above chance"
    )
    return parser
