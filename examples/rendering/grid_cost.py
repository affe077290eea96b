"""What rerunning the paper's grid, and runs beside the literature, would cost, from the assumptions in the grids."""

from pathlib import Path

from reproduction.cost import CORRUPTED_COPIES, total
from reproduction.grid import cells_of, load_grid


GRID = Path(__file__).parents[1] / "reproduction" / "grid.yaml"
BARS = GRID.with_name("bars.yaml")
DOLLARS_PER_HOUR = 2.50  # of `a100-large`, from https://huggingface.co/docs/hub/jobs-pricing


def prices() -> str:
    """What each table costs, from the assumptions of the grid."""
    grid = load_grid(GRID)
    rows = ["| table | cells | hours of one A100 | dollars |", "| --- | --- | --- | --- |"]
    for name in (*grid.tables, None):
        cells = cells_of(grid, None if name is None else [name])
        hours = total(cells, grid.cost) / 3600
        title = "all, cells that tables share counted once" if name is None else f"`{name}`"
        rows.append(f"| {title} | {len(cells)} | {hours:.1f} | {hours * DOLLARS_PER_HOUR:,.0f} |")
    text = f"On `a100-large`, at {DOLLARS_PER_HOUR:.2f} dollars an hour:"
    return "\n".join([text, "", *rows])


def bars() -> str:
    """What the runs beside the literature would cost."""
    grid = load_grid(BARS)
    trained = [cell for cell in cells_of(grid) if cell.trained == cell]
    hours = total(cells_of(grid), grid.cost) / 3600
    return (
        f"It has {len(trained)} runs, each measured twice, and would take about {hours:.0f} hours of one "
        f"{grid.cost['device']}, or {hours * DOLLARS_PER_HOUR:,.0f} dollars at {DOLLARS_PER_HOUR:.2f} an hour. It "
        "**has not been run**, and no GPU has confirmed the rates that the estimate rests on."
    )


def assumptions() -> str:
    """What the estimated hours rest on, from the grid."""
    grid = load_grid(GRID)
    cells, cost = cells_of(grid, None), grid.cost
    rates = ", ".join(f"`{name}` {rate:,}" for name, rate in cost["images_per_second"].items())
    loaders = sorted({data["loader"] for data in cost["images"].values()})
    rows = {
        "epochs, batch size": f"{grid.settings['num_train_epochs']}, {grid.settings['per_device_train_batch_size']}",
        f"training images per second at 224 pixels, {cost['device']}": rates,
        "at another size": f"in proportion to the pixels, but no step is shorter than {cost['launch']} s",
        "views per image": "MaCS 2, AugMix 3, both 4, all others 1; a view costs what an image costs",
        f"images per second from {grid.settings['dataloader_num_workers']} loader workers": f"{loaders[-1]:,} of 32 "
        f"pixels; {loaders[0]:,} where a JPEG is decoded and resized",
        "evaluation": "forward passes at three times the rate of training; on CIFAR also "
        f"{CORRUPTED_COPIES} corrupted copies of the test set, {cost['corrupted_per_second']:,} made per second",
        "start": f"{cost['start']} s per cell",
    }
    text = (
        f"The whole grid has {len(cells)} cells and is estimated to take {total(cells, cost) / 3600:.0f} hours of one "
        "A100. The estimate rests on these assumptions, which you can change under `cost` in `grid.yaml`:"
    )
    return "\n".join(
        [
            text,
            "",
            "| assumption | value |",
            "| --- | --- |",
            *(f"| {name} | {value} |" for name, value in rows.items()),
        ]
    )
