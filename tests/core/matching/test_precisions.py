"""What a class's precisions are taken from, where its features, its figures and its capability say different things."""

import pytest

from agent.core.matching.hardware import ClassFacts
from agent.core.matching.precisions import precision_fact


@pytest.mark.parametrize(
    ("capability", "features", "precision", "support"),
    [
        pytest.param(
            "7.5", ("fp16", "fp32"), "int8", "no", id="a part without tensor cores lists what it has"
        ),
        pytest.param("7.5", ("fp16", "fp32", "int8"), "int8", "yes", id="one with them lists more"),
        pytest.param("7.5", None, "int8", "not known", id="7.5 alone does not tell"),
        pytest.param("7.5", None, "fp16", "yes", id="what every 7.5 part has"),
        pytest.param("7.5", None, "bf16", "no", id="what no 7.5 part has"),
        pytest.param("8.0", None, "int8", "yes", id="8.0 tells by itself"),
        pytest.param(None, None, "fp8", "not known", id="nothing tells"),
    ],
)
def test_precision(capability, features, precision, support):
    facts = ClassFacts(name="a", vendor="nvidia", capability=capability, features=features)
    assert precision_fact(facts, precision).support == support
