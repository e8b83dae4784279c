"""Fuzz a target by its coverage, for as long as one likes: `python -m tests.fuzz frames tests/fuzz/corpus/frames`.

Needs atheris (`pip install 'tidings[fuzz]'`). Arguments after the target are libFuzzer's: directories of inputs, of
which the first gets what is found, and options such as `-runs=100000` or `-max_total_time=600`.
"""

import sys

FUZZED = ["tidings.protocol", "tidings.model.filters", "tidings.live.configuration"]


def main() -> None:
    import atheris

    with atheris.instrument_imports(include=FUZZED):
        from tests.fuzz.targets import TARGETS
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"give a target: {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]()
    atheris.Setup([*sys.argv, "-max_len=8192"], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
