"""Average precision: by hand, and against pycocotools."""

import importlib.util
import io
import os
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

from replica.trainer.tasks.detection.precision import (
    Array,
    Found,
    average_precision,
    mean_average_precision,
    overlaps,
    right_ones,
)

CLASSES = 3


def found(boxes: list[list[float]], truth: list[list[float]]) -> Found:
    scores = np.linspace(0.9, 0.5, len(boxes))
    return Found(np.reshape(boxes, (-1, 4)).astype(float), scores, np.reshape(truth, (-1, 4)).astype(float))


def test_a_true_box_is_found_once_by_the_best_detection_of_it() -> None:
    box = [0.0, 0, 10, 10]
    image = found([[0, 0, 10, 6], box, [20, 20, 30, 30]], [box])
    assert right_ones(image, 0.5).tolist() == [True, False, False]
    assert right_ones(image, 0.7).tolist() == [False, True, False]
    assert right_ones(found([box], []), 0.5).tolist() == [False]
    assert right_ones(found([], [box]), 0.5).tolist() == []


def test_a_detection_whose_best_box_is_taken_is_wrong_though_another_would_do() -> None:
    # Overlaps of the second detection: 0.9 with the first box, 0.75 with the other.
    boxes = [[0.0, 0, 10, 10], [0.0, 0, 10, 9]]
    image = found([boxes[0], [0.0, 0, 10, 9.6]], boxes)
    assert overlaps(image.boxes, image.truth)[1].argmax() == 0
    assert right_ones(image, 0.5).tolist() == [True, False]


def test_the_area_by_hand() -> None:
    scores = np.array([0.6, 0.9, 0.8, 0.7])
    right = np.array([True, True, False, False])
    # Precision 1 at recall 1/3, then 1/2 at recall 2/3; the third box is never found.
    assert average_precision(scores, right, 3) == pytest.approx((1 + 0.5) / 3)
    # The envelope: precision falls to 1/2 and rises to 2/3, which counts from there back.
    assert average_precision(np.array([0.9, 0.8, 0.7]), np.array([False, True, True]), 2) == pytest.approx(2 / 3)
    # All of one score enter together.
    assert average_precision(np.full(4, 0.5), right, 2) == pytest.approx(0.5)
    assert average_precision(np.array([]), np.array([], bool), 2) == 0


def test_classes_without_boxes_are_left_out() -> None:
    box = [0.0, 0, 10, 10]
    assert mean_average_precision([[found([box], [box])], [found([box], [])]], 0.5) == 1.0
    assert mean_average_precision([[found([], [box])], [found([box], [])]], 0.5) == 0.0
    assert mean_average_precision([[found([box], [])]], 0.5) == 0.0


def random_images(rng: np.random.Generator, images: int) -> list[list[Found]]:
    """By class, then image: true boxes that do not touch, detections near them and elsewhere.

    All scores differ. Nothing can overlap two true boxes by half, so that our rule (the best box,
    if not taken) and that of pycocotools (the best box that is not taken) agree at 0.5.
    """
    scores = iter(rng.permutation(10_000) / 10_000)
    by_class = []
    for _ in range(CLASSES):
        found = []
        for _ in range(images):
            cells = rng.permutation(9)[: rng.integers(0, 5)]
            corners = np.stack([cells // 3, cells % 3], axis=1) * 30.0 + rng.uniform(0, 5, (len(cells), 2))
            truth = np.concatenate([corners, corners + rng.uniform(10, 24, (len(cells), 2))], axis=1)
            near = np.repeat(truth, rng.integers(0, 4, len(truth)), axis=0)
            near = near + rng.normal(0, 2.0, near.shape)
            starts = rng.uniform(0, 80, (rng.integers(0, 4), 2))
            boxes = np.concatenate([near, np.concatenate([starts, starts + 15], axis=1)])
            own = np.sort([next(scores) for _ in boxes])[::-1]
            found.append(Found(boxes[rng.permutation(len(boxes))], own, truth))
        by_class.append(found)
    return by_class


def coco(by_class: list[list[Found]], least: float) -> tuple[Any, Any]:
    """Ground truth and detections as pycocotools reads them: x, y, width, height."""
    from pycocotools.coco import COCO

    def as_coco(box: Array) -> list[float]:
        return [box[1], box[0], box[3] - box[1], box[2] - box[0]]

    truth: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for number, images in enumerate(by_class, 1):
        for image, found in enumerate(images, 1):
            for box in found.truth:
                area = float(np.prod(box[2:] - box[:2]))
                truth.append(
                    {
                        "id": len(truth) + 1,
                        "image_id": image,
                        "category_id": number,
                        "iscrowd": 0,
                        "bbox": as_coco(box),
                        "area": area,
                    }
                )
            for box, score in zip(found.boxes, found.scores, strict=True):
                detections.append({"image_id": image, "category_id": number, "bbox": as_coco(box), "score": score})
    known = COCO()
    known.dataset = {
        "info": {},
        "images": [{"id": image} for image in range(1, len(by_class[0]) + 1)],
        "categories": [{"id": number} for number in range(1, CLASSES + 1)],
        "annotations": truth,
    }
    known.createIndex()
    return known, known.loadRes(detections)


def need_pycocotools() -> None:
    if importlib.util.find_spec("pycocotools") is None:
        reason = "not installed: pycocotools; `make test` installs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.parametrize("seed", range(5))
def test_pycocotools_finds_the_same_matches_and_the_same_area(seed: int) -> None:
    """Compared are the matches of every detection, and the area under the curve of each class.

    pycocotools reads the envelope at given recalls. At those in the middle between two true boxes,
    (k + 1/2) / B for B boxes, the mean of what it reads is the whole area exactly.
    """
    need_pycocotools()
    from pycocotools.cocoeval import COCOeval

    by_class = random_images(np.random.default_rng(seed), images=12)
    areas = []
    with redirect_stdout(io.StringIO()):
        known, detections = coco(by_class, 0.5)
        for number, images in enumerate(by_class, 1):
            boxes = sum(len(image.truth) for image in images)
            judge = COCOeval(known, detections, "bbox")
            judge.params.catIds = [number]
            judge.params.iouThrs = np.array([0.5])
            judge.params.recThrs = (np.arange(boxes) + 0.5) / boxes
            judge.params.areaRng, judge.params.areaRngLbl = [[0, 1e10]], ["all"]
            judge.params.maxDets = [100]
            judge.evaluate()
            judge.accumulate()
            areas.append(judge.eval["precision"][0, :, 0, 0, 0].mean())
            for image, result in zip(images, judge.evalImgs, strict=True):
                matched = [] if result is None else (result["dtMatches"][0] > 0).tolist()
                assert right_ones(image, 0.5).tolist() == matched
            right = np.concatenate([right_ones(image, 0.5) for image in images])
            scores = np.concatenate([image.scores for image in images])
            assert average_precision(scores, right, boxes) == pytest.approx(areas[-1], abs=1e-12)
    assert mean_average_precision(by_class, 0.5) == pytest.approx(np.mean(areas), abs=1e-12)
    assert 0.1 < np.mean(areas) < 0.95
