"""Requests to a trainer: settings that they carry, and fields that earlier ones lack."""

from pathlib import Path

import msgspec
import pytest

from aiperf.config.settings import load_config
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.lines import decode_train_request, encode
from aiperf.wire.messages import ArchitectureRequest
from replica.agent.trial.requests import TrialTraining, train_request

CHOSEN = {"batch_size": 8, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}


@pytest.mark.parametrize("decoder", ["libjpeg", "dali"])
def test_a_request_says_what_decodes_its_images(decoder: str, tmp_path: Path) -> None:
    config = load_config(overrides={"training.framework": "torch", "training.decoder": decoder})
    request = train_request(config, RunPaths(tmp_path), TrialTraining("a", CHOSEN, 1, 1, "float32"))
    assert request.decoder == decoder
    assert decode_train_request(encode(request)) == request


def test_libjpeg_decodes_for_requests_that_do_not_say_it(tmp_path: Path) -> None:
    request = train_request(load_config(), RunPaths(tmp_path), TrialTraining("a", CHOSEN, 1, 1, "float32"))
    earlier = msgspec.json.decode(encode(request))
    earlier.pop("decoder", None)
    found = decode_train_request(msgspec.json.encode(earlier))
    assert isinstance(found, ArchitectureRequest)
    assert found.decoder == "libjpeg"
