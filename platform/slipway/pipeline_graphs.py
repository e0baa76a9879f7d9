"""The graph of a pipeline as text, as Mermaid and as DOT."""

from slipway.schemas.pipeline_checks import dependencies, ordered
from slipway.schemas.pipelines import PipelineIn, StepIn

FORMATS = ("text", "mermaid", "dot")


def draw(pipeline: PipelineIn, form: str = "text") -> str:
    """Return the graph in one of FORMATS. Raises PipelineError for a cycle."""
    steps = ordered(pipeline)
    if form == "mermaid":
        return _mermaid(steps)
    return _dot(pipeline.name, steps) if form == "dot" else _text(steps)


def _text(steps: list[StepIn]) -> str:
    width = max(len(step.name) for step in steps)
    lines = []
    for step in steps:
        waits = [
            f"{name} ({', '.join(labels)})" if labels else name
            for name, labels in dependencies(step).items()
        ]
        notes = [_kind(step), *([f"after {', '.join(waits)}"] if waits else []), *_notes(step)]
        lines.append(f"{step.name:<{width}}  {'; '.join(notes)}")
    return "\n".join(lines)


def _mermaid(steps: list[StepIn]) -> str:
    ids = {step.name: f"s{number}" for number, step in enumerate(steps)}
    lines = ["flowchart TD"]
    for step in steps:
        label = "<br>".join([step.name, _kind(step), *_notes(step)]).replace('"', "'")
        left, right = ("{{", "}}") if step.kind == "approval" else ("[", "]")
        lines.append(f'  {ids[step.name]}{left}"{label}"{right}')
    for step in steps:
        for name, labels in dependencies(step).items():
            arrow = f"-->|{', '.join(labels)}|" if labels else "-->"
            lines.append(f"  {ids[name]} {arrow} {ids[step.name]}")
    return "\n".join(lines)


def _dot(name: str, steps: list[StepIn]) -> str:
    lines = [f"digraph {_quoted(name)} {{", "  node [shape=box];"]
    for step in steps:
        label = "\\n".join([step.name, _kind(step), *_notes(step)])
        lines.append(f"  {_quoted(step.name)} [label={_quoted(label)}];")
    for step in steps:
        for before, labels in dependencies(step).items():
            label = f" [label={_quoted(', '.join(labels))}]" if labels else ""
            lines.append(f"  {_quoted(before)} -> {_quoted(step.name)}{label};")
    return "\n".join([*lines, "}"])


def _kind(step: StepIn) -> str:
    if step.kind == "job":
        return str(step.script)
    if step.kind == "notebook":
        return f"notebook {step.script}"
    if step.kind == "sweep":
        return f"sweep of {step.script}"
    if step.kind == "approval":
        return f"approval by the role {step.approvers}"
    if step.kind == "predict":
        return f"predict {step.data} with {step.model}"
    return f"{step.kind} {step.model}"


def _notes(step: StepIn) -> list[str]:
    notes = []
    if step.foreach is not None:
        notes.append("for each item")
    if step.when is not None:
        notes.append(f"when {step.when}")
    if step.run_on != "success":
        notes.append(f"on {step.run_on}")
    return notes


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
