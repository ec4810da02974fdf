import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.frameworks import UNUSED, import_lean
from aiperf.host import this_host
from aiperf.registry import Registry

TOY = """
found = []
for name in ("pandas", "sklearn", "csv"):
    try:
        found.append(__import__(name).__name__)
    except ImportError:
        pass
"""

LOADS = f"""
import json, sys
from aiperf.frameworks import import_lean
version = import_lean(sys.argv[1]).__version__
import_lean("keras")
from replica.trainer.model.builder import set_up
set_up("float32", 1)
loaded = sorted({{*{UNUSED}, "jax", "tensorflow"}} & sys.modules.keys() - {{sys.argv[1]}})
import keras, matplotlib
print(json.dumps([version, loaded, keras.backend.backend(), matplotlib.__name__]))
"""


def test_a_framework_does_not_see_what_it_does_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_framework.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    for name in UNUSED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "sklearn.py").write_text("")
    monkeypatch.setitem(sys.modules, "pandas", json)  # as if it had been imported before
    assert import_lean("toy_framework").found == ["json", "csv"]
    assert not {"sklearn", "cv2", "matplotlib"} & sys.modules.keys()
    assert __import__("sklearn").__file__ == str(tmp_path / "sklearn.py"), "afterwards it can be imported"
    for name in ("toy_framework", "sklearn"):
        del sys.modules[name]


def test_a_framework_that_is_not_there_hides_nothing() -> None:
    before = set(sys.modules)
    with pytest.raises(ModuleNotFoundError, match="no_such_framework"):
        import_lean("no_such_framework")
    assert set(sys.modules) == before


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_frameworks_and_keras_work_without_them(framework: str) -> None:
    if framework == "torch":
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", LOADS, framework],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KERAS_BACKEND": framework},
    )
    version, loaded, backend, later = json.loads(done.stdout)
    assert (version[:2], loaded, backend, later) == ("2.", [], framework, "matplotlib")


ONEDNN = """
import os
from aiperf.frameworks import import_lean
tf = import_lean("tensorflow")
from tensorflow.python.util import _pywrap_util_port as port
print(int(port.IsMklEnabled()), os.environ["TF_ENABLE_ONEDNN_OPTS"])
"""


@pytest.mark.skipif("sse4_1" not in this_host().cpu_flags(), reason="only x86 processors have kernels for all")
@pytest.mark.parametrize(("chosen", "expected"), [({}, "1 1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0 0")])
def test_tensorflow_uses_onednn_on_every_x86_processor_unless_a_user_forbids_it(
    chosen: dict[str, str], expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    done = subprocess.run(
        [sys.executable, "-c", ONEDNN], stdout=subprocess.PIPE, text=True, check=True, env={**environment, **chosen}
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    ("cpuinfo", "expected"), [("flags : fpu sse4_1 avx2\n", "1"), ("Features : asimd sve\n", None)]
)
def test_the_choice_of_kernels_is_left_to_tensorflow_on_processors_of_arm(
    cpuinfo: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr("aiperf.host.ROOT", tmp_path)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "")  # so that it is put back
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr("importlib.import_module", lambda name: json)
    import_lean("tensorflow")
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == expected


def test_an_import_is_not_interrupted_by_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_implementation.py").write_text("import gc\nfound = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[bool] = Registry("toy", {"toy": "toy_implementation:found", "broken": "no_such_module:found"})
    assert registry.load("toy") is False
    with pytest.raises(ModuleNotFoundError):
        registry.load("broken")
    assert gc.isenabled()
    gc.disable()
    try:
        registry.load("toy")
        assert not gc.isenabled(), "who has switched it off wants it to stay so"
    finally:
        gc.enable()
    del sys.modules["toy_implementation"]
