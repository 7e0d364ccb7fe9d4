"""What whoever forks the course relies on and no other test runs: CI, dev container, Binder, citation."""

import json
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_every_action_is_pinned_to_a_commit_with_its_release_beside_it():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_ci_runs_what_a_person_runs_and_strangers_code_never_meets_the_gpu():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands["cpu"] == ["bash .ci/run"]
    assert commands["gpu"] == ["make gpu"]
    assert "pull_request" in jobs["gpu"]["if"]
    assert jobs["publish"]["needs"] == "cpu"
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("make test")


def test_the_dev_container_installs_the_same_pins():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    dockerfile = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).read_text()
    assert (ROOT / ".devcontainer" / container["build"]["context"]).resolve() == ROOT
    assert "COPY requirements.txt" in dockerfile
    assert "amd64" not in dockerfile and "x86" not in dockerfile.split("FROM")[1]
    assert container["containerEnv"]["VENV"] in dockerfile


def test_binder_reads_the_same_pins_and_the_same_python():
    assert "-r ../requirements.txt" in (ROOT / "binder/requirements.txt").read_text().splitlines()
    assert (ROOT / "binder/runtime.txt").read_text().strip() == "python-3.11"
    assert (ROOT / "binder/postBuild").stat().st_mode & 0o111


def test_requirements_are_exact():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []


def test_versions_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f'__version__ = "{version}"' in (ROOT / "code/gpudays/__init__.py").read_text()


def test_no_address_is_invented():
    """Until the course has a repository, nothing in it names one."""
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text()).get("repository-code", "")
    assert cited == address
