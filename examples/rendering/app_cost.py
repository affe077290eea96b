"""What the app costs, from model_cards/benchmarks/app.json."""

from .measurements import load


def app() -> str:
    """How soon the page is there, what an audit costs and what is kept, as measured."""
    found = load("app")
    page, audit, memory = found["first_page"], found["audit"], found["memory"]
    kept = memory["megabytes_after_each_audit"]
    rows = ["| | CPU seconds | compared with | ratio |", "| --- | --- | --- | --- |"]
    first, bare = page["cpu_seconds"]["app"]["median"], page["cpu_seconds"]["app_over_gradio"]
    rows.append(f"| until the form can be used | {first:.1f} | a page of Gradio with one button | {_ratio(bare)} |")
    for name, title in (
        ("command", "`macs-hf calibrate`"),
        ("command_in_a_warm_process", "`macs-hf calibrate`, libraries already loaded"),
    ):
        ratio = audit["cpu_seconds"][f"app_over_{name}"]
        rows.append(
            f"| an audit of `digits` | {audit['cpu_seconds']['app']['median']:.1f} | {title} | {_ratio(ratio)} |"
        )
    text = (
        f"On a CPU with one thread, medians [least, most] of {found['settings']['rounds']} rounds side by side "
        "([app.json](../model_cards/benchmarks/app.json)):"
    )
    grown = (
        f"Memory after the first of {found['settings']['audits']} audits in a row: {kept['one_visitor'][0]:,.0f} MB, "
        f"after the last: {kept['one_visitor'][-1]:,.0f} MB; after as many other visitors have come and gone: "
        f"{kept['visitors_who_come_and_go'][-1]:,.0f} MB."
    )
    return "\n".join([text, "", *rows, "", grown])


def _ratio(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} [{found['least']:.2f}, {found['most']:.2f}]"
