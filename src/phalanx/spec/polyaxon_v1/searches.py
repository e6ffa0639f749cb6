"""The matrix of an operation as `hptuning`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from phalanx.spec.matrix import FORMS, Matrix
from phalanx.spec.polyaxon_v1.sections import MATRIX, camel_case, known_keys
from phalanx.spec.rewrites import Map
from phalanx.spec.shapes import INVALID
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

POINT = "mapping"  # the param that holds one map of a `mapping`
_FORMS = {**{name: name for name in FORMS}, "choice": "values", "pchoice": "pvalues"}
_DATES = ("daterange", "datetimerange")
_KINDS = ("grid", "random", "hyperband", "bayes", "hyperopt", "tpe", "mapping")
MOST_DATES = 10_000


class SearchReader:
    """Reads `matrix` of an operation."""

    def __init__(self, node: Node, findings: Diagnostics) -> None:
        self.node, self.findings = node, findings
        self.entries = known_keys(node, MATRIX, "matrix", findings)
        kind = self.entries.get("kind")
        self.kind = str(kind.value) if kind is not None else "mapping" if "values" in self.entries else "grid"

    def hptuning(self) -> Node | None:
        """None after adding the reason to the findings."""
        if self.kind not in _KINDS:
            where = self.entries.get("kind") or self.node
            known = f"use one of {', '.join(_KINDS)}"
            hint = "choose a search of ours, such as `tpe`" if self.kind == "iterative" else None
            message = f"the search `{self.kind[:60]}` is not known here"
            self.findings.error(where, message, hint or did_you_mean(self.kind, _KINDS) or known)
            self._matrix()  # reports what else is wrong
            return None
        tuning: Map = {"matrix": self._mapping() if self.kind == "mapping" else self._matrix()}
        if "concurrency" in self.entries:
            tuning["concurrency"] = self.entries["concurrency"]
        else:
            self.findings.note(self.node, "no `concurrency`: one run at a time; Polyaxon starts all of them")
        if "seed" in self.entries:
            tuning["seed"] = self.entries["seed"]
        tuning |= self._algorithm()
        tuning |= self._early_stopping(tuning)
        if "tuner" in self.entries:
            self.findings.note(self.entries["tuner"], "`tuner` is not used: the search runs here")
        return self.node.like(dict(tuning))

    def points(self) -> Map:
        """The params of a `mapping`: each takes its value from the point of the trial."""
        names: dict[str, Node] = {}
        for entry in self.entries["values"].elements or () if "values" in self.entries else ():
            names |= {name: child for name, child in (entry.entries or {}).items() if name not in names}
        return {name: child.like(f"{{{{ {POINT}['{name}'] }}}}") for name, child in names.items() if "'" not in name}

    def _mapping(self) -> Node:
        values = self.entries.get("values")
        if values is None or not values.elements or any(not entry.entries for entry in values.elements):
            where = values or self.node
            self.findings.error(where, "a `mapping` needs `values`: a list of maps", "write `values: [{lr: 0.1}]`")
            return where.like({})
        self.findings.note(
            values, f"each map of `values` read as one value of `{POINT}`, from which params take theirs"
        )
        return values.like({POINT: values.like({"values": values})})

    def _matrix(self) -> Node:
        params = self.entries.get("params")
        if params is None or not params.entries:
            if self.kind != "hyperband" or params is not None:
                where = params or self.node
                self.findings.error(
                    where, "a matrix needs `params`", "write `params: {lr: {kind: choice, value: [1]}}`"
                )
            return (params or self.node).like({})
        return params.like({name: self._dimension(name, child) for name, child in params.entries.items()})

    def _dimension(self, name: str, node: Node) -> Node:
        kind, value = node.get("kind"), node.get("value")
        written = str(kind.value) if kind is not None else ""
        if kind is None or value is None or not node.entries or set(node.entries) - {"kind", "value"}:
            hint = "write `{kind: choice, value: [1, 2]}`"
            self.findings.error(node, f"`{name[:60]}` needs `kind` and `value`, and nothing else", hint)
        elif written in _DATES:
            return node.like({"values": self._dates(value, is_time=written == "datetimerange")})
        elif written in _FORMS:
            return node.like({_FORMS[written]: value})
        else:
            hint = did_you_mean(written, _FORMS) or f"use one of {', '.join(_FORMS)}"
            self.findings.error(kind, f"unknown kind `{written[:60]}` of a dimension", hint)
        return node.like({"values": node.like([node.like(0)])})  # reported above; stands for what was meant

    def _dates(self, value: Node, *, is_time: bool) -> Node:
        parts = value.plain()
        parts = [parts.get(key) for key in ("start", "stop", "step")] if isinstance(parts, dict) else parts
        parts = str(parts).split(":") if isinstance(parts, str) and not is_time else parts
        try:
            start, stop, step = parts
            first, end = (_moment(text, is_time=is_time) for text in (start, stop))
            gap = timedelta(seconds=float(step)) if is_time else timedelta(days=float(step))
            count = (end - first) / gap
            if not 0 < count <= MOST_DATES:
                raise ValueError
        except (TypeError, ValueError, ArithmeticError):
            self.findings.error(
                value, "expected a start, an end and a step", "write `value: [2027-01-01, 2027-02-01, 1]`"
            )
            return value.like([value.like("")])
        moments = [first + number * gap for number in range(int(count) + (count != int(count)))]
        return value.like([value.like(_date_text(moment, is_time=is_time)) for moment in moments])

    def _algorithm(self) -> Map:
        count = self.entries.get("numRuns")
        of_count: Map = {"n_experiments": count} if count is not None else {}
        if self.kind == "grid":
            return {"grid_search": self.node.like(dict(of_count))} if count is not None else {}
        if self.kind == "random":
            return {"random_search": self.node.like(dict(of_count))}
        if self.kind == "hyperband":
            keys = {"maxIterations": "max_iter", "eta": "eta", "resource": "resource", "resume": "resume"}
            return {"hyperband": self.node.like({**self._renamed(keys), **self._metric()})}
        if self.kind == "bayes":
            return {"bo": self.node.like({**self._bayes(), **self._metric()})}
        return self._tree_of_parzen(of_count) if self.kind in ("hyperopt", "tpe") else {}

    def _renamed(self, keys: dict[str, str]) -> Map:
        return {new: self.entries[old] for old, new in keys.items() if old in self.entries}

    def _metric(self) -> Map:
        return {"metric": self.entries["metric"]} if "metric" in self.entries else {}

    def _bayes(self) -> Map:
        keys = {"numInitialRuns": "n_initial_trials", "maxIterations": "n_iterations", "numIterations": "n_iterations"}
        result = self._renamed(keys)
        utility = self.entries.get("utilityFunction")
        if utility is not None:
            names = {
                "acquisitionFunction": "acquisition_function",
                "numWarmup": "n_warmup",
                "numIterations": "n_iter",
                "gaussianProcess": "gaussian_process",
                "lengthScale": "length_scale",
                "numRestartsOptimizer": "n_restarts_optimizer",
            }
            result["utility_function"] = _keys_renamed(utility, names)
        return result

    def _tree_of_parzen(self, of_count: Map) -> Map:
        algorithm = self.entries.get("algorithm")
        if "metric" not in self.entries or (algorithm is not None and algorithm.value in ("rand", "anneal")):
            where = algorithm or self.node
            self.findings.note(where, f"`{self.kind}` read as random search")
            return {"random_search": where.like(dict(of_count))}
        if "maxIterations" in self.entries:
            self.findings.note(self.entries["maxIterations"], "`maxIterations` is not used: `numRuns` runs are made")
        return {"tpe": self.node.like({**of_count, **self._metric()})}

    def _early_stopping(self, tuning: Map) -> Map:
        section = self.entries.get("earlyStopping")
        rules: list[Node] = []
        found: Map = {}
        for entry in section.elements or () if section is not None else ():
            kind = entry.get("kind")
            if kind is not None and kind.value == "failure_early_stopping":
                found |= self._most_failed(entry, tuning)
                continue
            rule = _rule(entry, self.findings)
            if rule is not None:
                rules.append(rule)
        if section is not None and rules:
            found["early_stopping"] = section.like(list(rules))
        return found

    def _most_failed(self, entry: Node, tuning: Map) -> Map:
        percent = entry.get("percent")
        total = self._size(tuning)
        if percent is None or not isinstance(percent.value, int | float) or total is None:
            self.findings.note(entry, "`failure_early_stopping` is not used: the number of runs is not known")
            return {}
        most = int(total * percent.value / 100)
        self.findings.note(entry, f"{percent.value} % of {total} runs read as `max_failed: {most}`")
        return {"max_failed": percent.like(most)}

    def _size(self, tuning: Map) -> int | None:
        count = self.entries.get("numRuns")
        if count is not None:
            return count.value if isinstance(count.value, int) else None
        matrix = Matrix().read(tuning["matrix"], Diagnostics())
        if matrix is INVALID or any(dimension.values is None for dimension in matrix):
            return None
        size = 1
        for dimension in matrix:
            size *= len(dimension.values or ())
        return size


_RULE = {"metric": "metric", "value": "value", "optimization": "optimization"}
_POLICY = {"kind": "kind", "evaluationInterval": "evaluation_interval", "percent": "percent"}


def _rule(entry: Node, findings: Diagnostics) -> Node | None:
    """One rule of early stopping; None if nothing is left of it."""
    if entry.entries is None:
        findings.error(entry, "expected a map with `kind: metric_early_stopping`")
        return None
    if entry.get("kind") is None:
        findings.note(entry, "no `kind`: read as `metric_early_stopping`")
    rule: Map = {new: entry.entries[old] for old, new in _RULE.items() if old in entry.entries}
    policy = entry.get("policy")
    if policy is not None and policy.entries is not None:
        entries = {camel_case(key): child for key, child in policy.entries.items()}
        kind = entries.get("kind")
        if kind is not None and kind.value == "diff":
            findings.note(policy, "the policy `diff` is not used: there are `median`, `average` and `truncation`")
        else:
            rule["policy"] = policy.like({new: entries[old] for old, new in _POLICY.items() if old in entries})
            for key in sorted(set(entries) - set(_POLICY)):
                findings.note(entries[key], f"`{key}` of a policy is not used")
    return entry.like(dict(rule)) if "value" in rule or "policy" in rule else None


def _keys_renamed(node: Node, names: dict[str, str]) -> Node:
    if node.entries is None:
        return node
    return node.like({names.get(key, key): _keys_renamed(child, names) for key, child in node.entries.items()})


def _moment(value: Any, *, is_time: bool) -> datetime:
    return datetime.fromisoformat(str(value)) if is_time else datetime.fromisoformat(str(value)[:10])


def _date_text(moment: datetime, *, is_time: bool) -> str:
    return moment.isoformat(sep=" ") if is_time else moment.date().isoformat()
