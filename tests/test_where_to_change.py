"""The ten changes of CONTRIBUTING.md's table, each tried on a copy of the package: no other file has to change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ranking_evaluate
from ranking_evaluate.attempts.migrations import SCHEMA_VERSION
from ranking_evaluate.cli import COMMANDS
from ranking_evaluate.contract.replay import REPLAY_HOURS

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = Path(ranking_evaluate.__file__).parent

EVERY_TEXT: Final = """
import json
from ranking_evaluate.bootstrap import WIRES
from ranking_evaluate.contract import home, reference
state = {"ready": True, "store": {"reason": None}, "release": "", "rails": {}}
texts = {path: content.decode() for path, content in reference.render(WIRES).items()}
texts["home"] = home.render("https://rank.example", state, WIRES)
print(json.dumps(texts))
"""


class Copy:
    """A copy of the package in which a change is tried."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "ranking_evaluate"
        self._environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))

    def change(self, file: str, old: str, new: str) -> None:
        path = self.package / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def run(self, source: str, *arguments: str) -> str:
        command = [sys.executable, "-c", source, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def texts(self) -> dict[str, str]:
        """Return every document of the changed release, by its name."""
        found: dict[str, str] = json.loads(self.run(EVERY_TEXT))
        return found


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_every_operation_takes_a_figure_from_its_one_definition(copy: Copy) -> None:
    results = (
        "import json; from ranking_evaluate.contract.document import example_response;"
        "from ranking_evaluate.operations.registry import OPERATIONS;"
        "print(json.dumps({operation.id: example_response(operation)['result'] for operation in OPERATIONS}))"
    )
    before = json.loads(copy.run(results))
    copy.change("core/metrics.py", "precision.append(found / k)", "precision.append(found / k / 2)")
    after = json.loads(copy.run(results))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"ranking-evaluate", "ranking-compare", "retrieval-measure", "lexical-retrieval"}


def test_a_new_figure_is_its_definition_and_its_lines_in_the_list(copy: Copy) -> None:
    definition = (
        "    @property\n"
        "    def success(self) -> list[float]:\n"
        '        """1 when a relevant document stands within k, else 0; trec_eval\'s success_k."""\n'
        "        return [float(found > 0) for found in self.hits]\n\n\n"
    )
    copy.change("core/metrics.py", "def judge(", f"{definition}def judge(")
    lines = {
        '"ndcgAtK"]': '"ndcgAtK", "successAtK"]',
        '    "recallAtK": "Recall",\n': '    "recallAtK": "Recall",\n    "successAtK": "Success",\n',
        "    precisionAtK: float\n": "    precisionAtK: float\n    successAtK: float\n",
        "    precisionAtK: float | None\n": "    precisionAtK: float | None\n    successAtK: float | None\n",
        "    precisionAtK: Count\n": "    precisionAtK: Count\n    successAtK: Count\n",
        '"precisionAtK": scores.precision,': '"precisionAtK": scores.precision, "successAtK": scores.success,',
    }
    for old, line in lines.items():
        copy.change("operations/figures.py", old, line)
    seen = copy.run(
        "import json\n"
        "from ranking_evaluate import evaluate\n"
        "from ranking_evaluate.contract.discovery import example_body\n"
        "from ranking_evaluate.contract.schema import answer_schema\n"
        "from ranking_evaluate.interchange.merge import merge\n"
        "from ranking_evaluate.operations.registry import find\n"
        "operation = find('ranking-evaluate')\n"
        "response = evaluate(operation.id, example_body(operation))\n"
        "result = json.loads(response)['result']\n"
        "schema = json.dumps(answer_schema(operation))\n"
        "merged = json.loads(merge([response]).document)\n"
        "print(result['queries'][0]['successAtK'], result['macro']['successAtK'], 'successAtK' in schema, "
        "merged['macro']['successAtK'])"
    )
    assert seen == "1 1 True 1\n"


def test_a_new_operation_is_a_file_and_two_lines_of_the_registry(copy: Copy) -> None:
    text = (copy.package / "operations" / "first_usable_rank.py").read_text(encoding="utf-8")
    text = text.replace('id="first-usable-rank"', 'id="second-usable-rank"')
    (copy.package / "operations" / "second_usable_rank.py").write_text(text, encoding="utf-8")
    copy.change(
        "operations/registry.py", "    retrieval_measure,\n", "    retrieval_measure,\n    second_usable_rank,\n"
    )
    copy.change("operations/registry.py", "    ranking_compare.OPERATION,\n", "    second_usable_rank.OPERATION,\n")
    texts = copy.texts()
    assert "reference/tools/second-usable-rank.md" in texts
    for name in ("llms.txt", "home", "reference/README.md"):
        assert "second-usable-rank" in texts[name], name
    paths = copy.run(
        "from ranking_evaluate.contract import document, openapi; from ranking_evaluate.operations import registry;"
        "print([document.path_of(operation, 'x402') for operation in registry.OPERATIONS])"
    )
    assert "/v1/x402/second-usable-rank" in paths


def test_a_new_x402_network_is_one_line(copy: Copy) -> None:
    network = "eip155:10"
    read = (
        "from ranking_evaluate.settings import SettingsError, read_settings\n"
        "given = {'X402_PAY_TO': '0x' + '11' * 20, 'X402_NETWORK': 'eip155:10',"
        " 'X402_FACILITATOR_URL': 'https://facilitator.example'}\n"
        "try:\n"
        "    settings = read_settings({f'RANKING_EVALUATE_{name}': value for name, value in given.items()})\n"
        "    print(settings.x402.networks[0].token.name)\n"
        "except SettingsError as error:\n"
        "    print(error.faults)"
    )
    assert "X402_ASSET" in copy.run(read)
    line = f'    "{network}": Token("0x{"22" * 20}", "New Dollar", "2"),\n'
    copy.change("payments/config.py", '    "eip155:8453": Token(', f'{line}    "eip155:8453": Token(')
    assert copy.run(read) == "New Dollar\n"


def test_a_changed_price_is_in_every_text_client_and_limit(copy: Copy) -> None:
    line = '    id="ranking-evaluate",\n'
    copy.change("operations/ranking_evaluate.py", line, f"{line}    price_base_units=25_000,\n")
    texts = copy.texts()
    assert "0.025 USD (25000 base units" in texts["llms.txt"]
    assert "0.025 USD a call" in texts["home"]
    assert '"sixDecimalTokenBaseUnits": "25000"' in texts["reference/services/ranking-evaluate.json"]
    for client in ("pay_x402.py", "pay_x402.mjs", "pay_mpp.py", "pay_mpp.mjs"):
        source = texts[f"reference/examples/{client}"].replace("25_000", "25000")
        assert source.count("25000") == 1, client
        assert "10000" not in source, client
    limit = "from ranking_evaluate.contract.document import highest_price_usd; print(highest_price_usd())"
    assert copy.run(limit) == "0.025\n"


def test_a_new_error_code_is_a_row_and_its_class(copy: Copy) -> None:
    copy.change(
        "contract/problems.py",
        '    "OVERLOADED": Problem(',
        '    "CLOSED_FOR_LUNCH": Problem("Nobody is here", True, "Come back at two."),\n    "OVERLOADED": Problem(',
    )
    copy.change("contract/errors.py", 'codes = ("OVERLOADED",', 'codes = ("CLOSED_FOR_LUNCH", "OVERLOADED",')
    texts = copy.texts()
    assert "503 CLOSED_FOR_LUNCH: Come back at two." in texts["llms.txt"]
    assert "CLOSED_FOR_LUNCH" in texts["reference/errors.md"]


def test_a_changed_replay_window_is_in_every_text_and_in_the_rows(copy: Copy) -> None:
    copy.change("contract/replay.py", f"REPLAY_HOURS: Final = {REPLAY_HOURS}", "REPLAY_HOURS: Final = 48")
    texts = copy.texts()
    assert "For 48 hours" in texts["llms.txt"]
    assert "for 48 hours" in texts["home"]
    assert "48-hour replay window" in texts["reference/services/ranking-evaluate.json"]
    for name, text in texts.items():
        assert not re.search(rf"\b{REPLAY_HOURS}[ -]hour", text), name
    for path in sorted(copy.package.rglob("*")):
        if path.suffix in {".py", ".txt", ".html"}:
            assert not re.search(rf"\b{REPLAY_HOURS}[ -]hour", path.read_text(encoding="utf-8")), path
    window = "from ranking_evaluate.attempts import attempt; print(attempt.REPLAY_WINDOW)"
    assert copy.run(window) == f"{48 * 3600.0}\n"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md"])
def test_every_page_states_the_replay_window_as_it_is(page: str) -> None:
    for path in ROOT.glob(page):
        stated = re.findall(r"\b(\d+)[ -]hours?\b", path.read_text(encoding="utf-8"))
        assert set(stated) <= {str(REPLAY_HOURS)}, path


def test_a_new_column_of_attempts_is_a_field_and_a_migration_step(copy: Copy, tmp_path: Path) -> None:
    line = "    schema_sha256: str | None = None\n"
    copy.change("attempts/attempt.py", line, f"{line}    note: str | None = None\n")
    step = copy.package / "attempts" / "schema" / f"both_{SCHEMA_VERSION + 1}.sql"
    step.write_text('ALTER TABLE attempts ADD COLUMN "note" TEXT;\n', encoding="utf-8")
    keep = (
        "import asyncio, sys\n"
        "from ranking_evaluate.attempts.sqlite import SqliteStore\n"
        "from tests.attempts.samples import draft, reserved\n"
        "async def main():\n"
        "    store = SqliteStore(sys.argv[1])\n"
        "    await store.open()\n"
        "    made = await reserved(store, draft(note='kept'))\n"
        "    print((await store.find(made.claim)).note)\n"
        "    await store.close()\n"
        "asyncio.run(main())"
    )
    assert copy.run(keep, str(tmp_path / "attempts.db")) == "kept\n"


def test_another_database_is_a_file_and_a_line_of_bootstrap(copy: Copy) -> None:
    store = '"""Elsewhere."""\n\n\nclass ElsewhereStore:\n    """A store."""\n'
    (copy.package / "attempts" / "elsewhere.py").write_text(store, encoding="utf-8")
    line = "    if database_url.startswith(SQLITE):\n"
    own = (
        "    if database_url.startswith('elsewhere://'):\n"
        "        from ranking_evaluate.attempts.elsewhere import ElsewhereStore\n"
        "        return ElsewhereStore()\n"
    )
    copy.change("bootstrap.py", line, f"{own}{line}")
    opened = copy.run(
        "from ranking_evaluate.bootstrap import open_store; print(type(open_store('elsewhere://host')).__name__)"
    )
    assert opened == "ElsewhereStore\n"


def test_a_new_command_is_a_file_and_a_line(copy: Copy) -> None:
    hello = '"""Greets."""\n\n\ndef hello() -> None:\n    """Greet."""\n    print("Good morning.")\n'
    (copy.package / "cli" / "hello.py").write_text(hello, encoding="utf-8")
    first = next(iter(COMMANDS))
    copy.change("cli/__init__.py", f'    "{first}": "', f'    "hello": "hello",\n    "{first}": "')
    command = "from ranking_evaluate.cli import app; app()"
    assert copy.run(command, "hello") == "Good morning.\n"
    assert "hello" in copy.run(command, "--help")
