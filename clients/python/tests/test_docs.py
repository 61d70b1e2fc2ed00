"""The programs in the documentation run as they are written. The test replaces addresses and files."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from pathlib import Path

from refdb_client import Client

from .real import PATIENCE, Case

PYTHON = Path(__file__).parent.parent
PAGES = (PYTHON / "README.md", PYTHON.parent.parent / "docs" / "SERVICE.md")

ONE = "1" * 40
DEPLOYED = "refs/deployed/production"


@unittest.skipUnless(PAGES[1].exists(), "left out: the documentation, which is not beside this package")
class Docs(Case):
    def test_each_program_runs(self) -> None:
        self.put("my/project", DEPLOYED, ONE)
        token = self.subject("ci", ("lock", "my/project", "*"), ("write", "my/project", "*"))
        server = self.serve()
        for page in PAGES:
            programs = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
            self.assertTrue(programs, page)
            for program in programs:
                with self.subTest(page.name, program=program):
                    program = re.sub(r'"https?://[^"]*"', repr(server.url), program)
                    program = re.sub(r'token_file="[^"]*"', f"token_file={str(token)!r}", program)
                    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
                    self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                    self.assertIn("deploying", done.stdout)
                    with Client(server.url, token_file=token) as client:
                        held = client.get("my/project", DEPLOYED)[DEPLOYED].value
                    self.assertEqual("RefUpdate" in program, held != ONE)
                    if held != ONE:
                        self.operate("refs", "put", "my/project", DEPLOYED, ONE, "--old", held)
