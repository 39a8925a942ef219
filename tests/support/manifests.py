"""Kubernetes manifests: read, and held against the schemas of those who define them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubeflow.training
import kubeflow_trainer_api.models as trainer
import kubernetes_validate
import yaml

DATA = Path(__file__).parents[1] / "data" / "kubernetes"
KUBERNETES_VERSIONS = ("1.29", "1.33", "1.37")
TRAINER_KINDS = {
    "TrainJob": trainer.TrainerV1alpha1TrainJob,
    "TrainingRuntime": trainer.TrainerV1alpha1TrainingRuntime,
}


class Mismatch(Exception):
    """A manifest has a field or a value that its kind does not have."""


class _Response:
    """What the SDK's reader wants: an answer of the API server."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.data = json.dumps(document)


def documents(path: Path) -> list[dict[str, Any]]:
    """Returns the documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def pod_templates(document: Any) -> Iterator[dict[str, Any]]:
    """Yields every pod template in a document, at whatever depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "template" and "containers" in value.get("spec", {}):
                yield value
            else:
                yield from pod_templates(value)
    elif isinstance(document, list):
        for value in document:
            yield from pod_templates(value)


def check(document: dict[str, Any]) -> None:
    """Holds a document against the schema of its kind, and its pods against Kubernetes'.

    Raises:
        Mismatch: it does not fit.
    """
    kind, version = document["kind"], document["apiVersion"]
    if version == "kubeflow.org/v1":
        _check_round_trip(document, _through_training_sdk(document))
    elif version == "trainer.kubeflow.org/v1alpha1":
        _check_round_trip(document, _through_trainer_sdk(document, kind))
    elif version == "kubeflow.org/v2beta1":
        _check_mpijob(document)
    else:
        _check_native(document)
    for template in pod_templates(document):
        _check_native({"apiVersion": "v1", "kind": "PodTemplate", "template": template})


def _check_native(document: dict[str, Any]) -> None:
    for version in KUBERNETES_VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as problem:
            raise Mismatch(f"{document['kind']}, Kubernetes {version}: {problem}") from None


def _check_mpijob(document: dict[str, Any]) -> None:
    schema = json.loads((DATA / "mpijob_v2beta1.schema.json").read_text())
    try:
        jsonschema.validate(document, schema)
    except jsonschema.ValidationError as problem:
        raise Mismatch(f"MPIJob: {problem.message}") from None


def _through_training_sdk(document: dict[str, Any]) -> Any:
    client = kubeflow.training.ApiClient()
    model = getattr(kubeflow.training, f"KubeflowOrgV1{document['kind']}")
    try:
        read = client.deserialize(_Response(document), model)
    except (TypeError, ValueError) as problem:
        raise Mismatch(f"{document['kind']}: {problem}") from None
    return client.sanitize_for_serialization(read)


def _through_trainer_sdk(document: dict[str, Any], kind: str) -> Any:
    try:
        read = TRAINER_KINDS[kind].from_dict(document)
    except ValueError as problem:
        raise Mismatch(f"{kind}: {problem}") from None
    assert read is not None
    return read.to_dict()


def _check_round_trip(document: dict[str, Any], returned: Any) -> None:
    """The models leave out what they do not know: whatever is lost on the way is unknown."""
    lost = sorted(_lost(document, returned, ""))
    if lost:
        raise Mismatch(f"{document['kind']}: unknown or of another type: {', '.join(lost)}")


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from _lost(value, after.get(key), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _lost(one, other, f"{path}[{index}]")
    elif before != after:
        yield path.removeprefix(".")
