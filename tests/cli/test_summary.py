"""The lines that a command prints: what is called calibrated, what is promised, and what came true."""

from dataclasses import replace

import pytest

from macs_hf.cli.summary import kind_of_model, summary_table
from macs_hf.report.evaluation import EvaluationReport, Interval, Measurement, ReliabilityTable, Temperature
from macs_hf.report.guarantees import AbstentionGuarantee, Guarantees, PredictionSetGuarantee, Share
from macs_hf.report.risk_coverage import RiskCoverage


METRICS = {
    "accuracy": Interval(0.7, 0.6, 0.8),
    "nll": Interval(0.9, 0.8, 1.0),
    "ece": Interval(0.05, 0.04, 0.06),
    "brier": Interval(0.4, 0.3, 0.5),
}
PART = Measurement(METRICS, 0.01, ReliabilityTable((0.0,), (1.0,), (100,), (0.75,), (0.7,)))
FITTED = Temperature(1.5, None, "validation", 200, 0.06, nll_gain=Interval(0.1, 0.08, 0.12))
SHIFTED = {1: Share(0.88, 0.8, 0.9, 50), 2: Share(0.8, 0.7, 0.9, 50), 5: Share(0.5, 0.4, 0.6, 50)}
SETS = PredictionSetGuarantee("lac", 0.9, 0.5, 200, Share(0.91, 0.84, 0.95, 100), 1.25, (45, 46), SHIFTED)
SURE = AbstentionGuarantee(0.95, 0.05, 200, 0.83, None, Share(0.7, 0.6, 0.8, 100), Share(0.96, 0.9, 0.99, 70))
UNSURE = AbstentionGuarantee(0.99, 0.05, 200, reason="too few")
PROMISES = Guarantees(
    200, 200, 100, 1.5, True, None, (50, 50), ("a", "b"), (SETS, replace(SETS, method="raps")), (SURE, UNSURE)
)
REPORT = EvaluationReport("model", "data", "test", 100, PART, PART, FITTED, guarantees=PROMISES)


@pytest.mark.parametrize(
    ("temperature", "kind", "line"),
    [
        (FITTED, "calibrated model", "; it lowered the NLL of the test images by 0.100 [0.080, 0.120]"),
        (replace(FITTED, nll_gain=None), "calibrated model", "temperature 1.5000 ± 0.0600, fitted on 200 held-out"),
        (
            replace(FITTED, nll_gain=Interval(0.001, -0.01, 0.012)),
            "model, whose temperature did not help beyond chance,",
            "not calibrated: no lower NLL of the test images beyond chance (gain 0.001 [-0.010, 0.012])",
        ),
        (
            replace(FITTED, nll_gain=Interval(-0.1, -0.2, -0.05)),
            "model, whose temperature did not help beyond chance,",
            "not calibrated: it raised the NLL of the test images (gain -0.100 [-0.200, -0.050])",
        ),
        (
            Temperature(1.0, "60 samples are fewer than the 100 a fit needs", nll_gain=Interval(0.0, 0.0, 0.0)),
            "model, which got no temperature,",
            "not calibrated, the temperature stays 1: 60 samples are fewer",
        ),
    ],
)
def test_a_model_is_called_calibrated_only_if_the_temperature_helped(
    temperature: Temperature, kind: str, line: str
) -> None:
    report = replace(REPORT, temperature=temperature)
    assert kind_of_model(report) == kind
    assert line in summary_table(report)
    assert ("with temperature" in summary_table(report)) == (temperature.reason is None)


def test_promises_and_what_came_true() -> None:
    lines = summary_table(REPORT).splitlines()
    assert [" ".join(line.split()) for line in lines[-5:-1]] == [
        "promises for images like the 200 held-out ones, and what came true:",
        "promise on test images at severity 1 to 5",
        "class in 90% of sets 91.0% [84.0, 95.0] 1.25 classes 88 80 - - 50%",
        "95% right, if >= 0.83 96.0% [90.0, 99.0] 70.0% answered",
    ]
    assert lines[-1] == "99% of the answers right: not promised, too few"
    assert max(map(len, lines[-5:])) <= 80
    nearly_1 = replace(PROMISES, abstentions=(replace(PROMISES.abstentions[0], threshold=1 - 1e-6),))
    assert "95% right, if >= 0.999999 96.0%" in summary_table(replace(REPORT, guarantees=nearly_1))
    approximate = summary_table(replace(REPORT, guarantees=replace(PROMISES, exact=False)))
    assert "held-out ones, approximate, since these also chose the checkpoint, and" in approximate
    nothing = Guarantees(60, 0, 0, 1.5, True, "promises take at least 400 held-out samples")
    shown = summary_table(replace(REPORT, guarantees=nothing))
    assert shown.endswith("nothing is promised: promises take at least 400 held-out samples")


def test_risk_and_coverage_in_a_line() -> None:
    found = RiskCoverage(
        Interval(0.042, 0.031, 0.053), Interval(0.03, 0.02, 0.04), {"5%": Interval(0.6, 0.5, 0.7)}, (1.0,), (0.3,)
    )
    shown = summary_table(replace(REPORT, risk_coverage=found))
    line = "test images that could be answered, the surest first: 60.0% [50.0, 70.0] with 5% wrong "
    assert line + "(AURC 0.0420 [0.0310, 0.0530]); no promise" in shown
    shown = summary_table(replace(REPORT, risk_coverage=replace(found, risk=(0.0,))))
    assert "no answer to a test image was wrong" in shown and "AURC" not in shown
