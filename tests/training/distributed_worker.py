"""Run under `accelerate launch` by test_processes.py: trains, and each process writes what it logged and drew."""

import json
import sys
from typing import Any

from tiny import Drawn, Images, Spy, arguments, build, end_process, logged


def main(output_dir: str, settings: dict[str, Any]) -> None:
    model, samples, resume = settings.pop("model"), settings.pop("samples"), settings.pop("resume", None)
    args = arguments(output_dir, **settings)
    run = Spy(model=build(model), args=args, train_dataset=Drawn(samples), eval_dataset=Images(10, seed=1))
    run.train(resume_from_checkpoint=resume)
    evaluation = run.evaluate()
    prediction = run.predict(Images(13, seed=2))
    calibration = run.calibrate(Images(101, seed=3))
    result = {
        "losses": {key: logged(run, key) for key in ("loss", "consistency_loss")},
        "seeds": run.seeds,
        "drawn": run.drawn,
        "evaluated": logged(run, "eval_loss"),
        "evaluation": {name: evaluation[f"eval_{name}"] for name in ("loss", "nll")},
        "rows": len(prediction.predictions),
        "predictions": prediction.predictions.tolist(),
        "temperature": calibration.value,
        "weights": float(sum(p.double().sum() for p in run.model.state_dict().values())),
    }
    end_process(output_dir, result)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
