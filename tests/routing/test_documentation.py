import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "routing.md"


def test_the_examples_of_the_reference_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {})
