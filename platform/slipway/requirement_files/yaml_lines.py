"""YAML with the line of each value, read without recursion and without anchors, tags or aliases."""

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH: Final = 12


class YamlRefused(ValueError):
    """A document that is not read: the number of a line, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass
class YamlNode:
    """A value and its line. `content` is a text, a list of nodes, or nodes by their keys.

    A null is an empty text with `is_null`.
    """

    line: int
    content: "str | list[YamlNode] | dict[str, YamlNode]"
    is_null: bool = False

    @property
    def text(self) -> str | None:
        """The text of a value that is one."""
        return self.content if isinstance(self.content, str) and not self.is_null else None

    @property
    def items(self) -> "list[YamlNode] | None":
        """The values of a list."""
        return self.content if isinstance(self.content, list) else None

    @property
    def mapping(self) -> "dict[str, YamlNode] | None":
        """The values of a mapping."""
        return self.content if isinstance(self.content, dict) else None

    def get(self, key: str) -> "YamlNode | None":
        """Return a value of a mapping, None if there is none."""
        return self.content.get(key) if isinstance(self.content, dict) else None

    def text_of(self, key: str) -> str:
        """Return a text of a mapping, empty if there is none."""
        node = self.get(key)
        return (node.text or "") if node is not None else ""


def parse_yaml(text: str) -> YamlNode:
    """Return the only document of a text. Raises YamlRefused."""
    root: YamlNode | None = None
    open_nodes: list[YamlNode] = []
    # The key of a mapping whose value comes next, for each open node.
    keys: list[str | None] = []
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            node = _node_of(event)
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise YamlRefused(_line(event), "it has more than one document")
            if isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
                open_nodes.pop()
                keys.pop()
            if node is None:
                continue
            if open_nodes:
                keys[-1] = _add(open_nodes[-1], keys[-1], node)
            else:
                root = node
            if not isinstance(node.content, str):
                open_nodes.append(node)
                keys.append(None)
                if len(open_nodes) > _MAX_DEPTH:
                    raise YamlRefused(node.line, f"it has more than {_MAX_DEPTH} levels")
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        reason = re.sub(r"\s+", " ", f"it is no valid YAML: {error.problem or error.context}")
        raise YamlRefused(mark.line + 1 if mark else 1, reason) from error
    except yaml.YAMLError as error:
        raise YamlRefused(1, "it contains characters that YAML does not allow") from error
    return root or YamlNode(1, "", is_null=True)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _node_of(event: Any) -> YamlNode | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise YamlRefused(_line(event), "anchors and aliases are not read")
    is_plain = isinstance(event, yaml.ScalarEvent) and event.style is None
    if getattr(event, "tag", None) and isinstance(event, yaml.NodeEvent):
        raise YamlRefused(_line(event), "tags such as !!python are not read")
    if isinstance(event, yaml.ScalarEvent):
        is_null = is_plain and event.value.lower() in ("", "~", "null")
        return YamlNode(_line(event), "" if is_null else event.value, is_null)
    if isinstance(event, yaml.SequenceStartEvent):
        return YamlNode(_line(event), [])
    if isinstance(event, yaml.MappingStartEvent):
        return YamlNode(_line(event), {})
    return None


def _add(parent: YamlNode, key: str | None, node: YamlNode) -> str | None:
    """Add a value, or the key of the next one. Returns that key, or None."""
    if isinstance(parent.content, list):
        parent.content.append(node)
    elif isinstance(parent.content, dict):
        if key is not None:
            parent.content[key] = node
        elif not isinstance(node.content, str):
            raise YamlRefused(node.line, "a key is a list or a mapping")
        elif node.content in parent.content:
            raise YamlRefused(node.line, f"the key {node.content[:50]!r} is there twice")
        else:
            return node.content
    return None
