"""What mutations put into files: keys of all dialects, values of every size and type, templates, and -P values."""

from __future__ import annotations

import json
from random import Random

_WORDS = (
    "version kind name description tags logging framework backend environment build run cmd params inputs outputs "
    "declarations settings hptuning matrix values range linspace logspace geomspace uniform quniform loguniform "
    "qloguniform normal qnormal lognormal qlognormal pvalues concurrency seed random_search grid_search hyperband bo "
    "asha tpe cmaes pbt max_iter min_iter interval population sigma quantile resample_probability percent "
    "n_experiments n_initial_trials n_iterations max_iterations eta resource resume metric optimization "
    "repeat budget core_hours gpu_hours until warm_start reuse max_failed ranks "
    "utility_function acquisition_function kappa eps gaussian_process kernel length_scale early_stopping value policy "
    "ops templates template dependencies trigger schedule execute_at interval_seconds depends_on_past max_retries "
    "retry_delay timeout concurrency dag event action hub url path replicas n_workers n_ps worker ps master "
    "default_worker default_ps default_worker_resources default_ps_resources worker_resources ps_resources index "
    "launcher master_task processes resources cpu memory gpu tpu requests limits request limit tensorflow pytorch "
    "pytroch mxnet horovod mpi jax deepspeed xgboost caffe2 distribution env_vars labels annotations node_selector "
    "node_selectors tolerations affinity persistence data data_refs artifact_refs secret_refs config_map_refs "
    "configmap_refs service_account image image_pull_secrets image_pull_policy restart_policy security_context "
    "max_restarts max_runtime grace_period ttl log_level is_optional is_flag is_list default options type level "
    "formatter exec steps build_steps dockerfile context ref lang_env git nocache jobs partition account qos time "
    "nodes gres constraint reservation mail_user slurm kubernetes kubeflow local namespace volumes volume_mounts "
    "init_containers containers host_network dns_policy priority_class_name queue gang shm_size cond if do else_do "
    "then else plugin component operation experiment group job notebook tensorboard pipeline project user <<"
)
KEYS = _WORDS.split()

ODD_KEYS = (
    '""', "~", "null", "true", "1", "-1", "0.5", "1e400", "<<", '"<<"', "'a b'", "a.b", "a-b", "a[0]", "A", "ключ",
    "'{{ lr }}'", "'{{'", "'{% if a %}'", '"a\\nb"', '"\\0"', '"\\uD800"', '"\\e[31m"', "? a", "[a]", "{a: 1}", "*a",
    "&a b", "!!str a", "!a b", "k" * 300, "'=' ", "name ", "__class__", "__init__", "None", "2026-11-17", "0x10",
    "'#'", "'${HOME}'", "'$(id)'", '"\\u2028"', "'\\'", "@", "`", "%", "|", ">", "-", ":", ",",
)  # fmt: skip

LONG = ("x" * 2_000, "x" * 70_000, "9" * 400, "9" * 5_000, "1" + "0" * 30, "é" * 3_000, '"' + "\\n" * 500 + '"')
NESTED = ("[" * 20 + "]" * 20, "[" * 63 + "]" * 63, "[" * 3_000, "{a: " * 30 + "1" + "}" * 30, "{a: [" * 2_000)

SCALARS = (
    "", "~", "null", "true", "false", "yes", "off", "0", "1", "-1", "2", "3", "7", "64", "100", "2147483648",
    "9223372036854775808", "-9223372036854775809", "1" + "0" * 400, "0.5", "-0.0", "1e5", "1e-9", "1e308", "1e400",
    "-1e400", ".inf", "-.inf", ".nan", "0x1F", "0x_", "0b1", "010", "08", "0o7", "1_000", "1:10:2", "0:1", "1:2:3:4",
    "190:20:30", "2026-11-17", "2026-11-17T10:00:00Z", "12:30", "=", "<<", "a", "abc", "'a b'", "'1'", '"true"', "'~'",
    '""', "''", "'  '", "'a, b'", "a.b.c", "1Gi", "2Gi", "0.5Gi", "500m", "1e3Mi", "-1Gi", "1Xi", "1 Gi",
    "9" * 30 + "Gi",
    ".infGi", "nanGi", "1e400", "experiment", "group", "job", "build", "notebook", "tensorboard", "pipeline", "pytorch",
    "tensorflow", "horovod", "mpi", "jax", "deepspeed", "xgboost", "mxnet", "native", "kubeflow", "kubernetes", "slurm",
    "local", "maximize", "minimize", "INFO", "float", "int", "str", "bool", "path", "list", "dict", "uri", "metric",
    '"a\\nb"', '"a\\rb"', '"a\\tb"', '"\\0"', '"\\x1b[31mred"', '"\\uD800"', '"\\uDC00x"', '"\\u2028"', '"\\u202e"',
    '"\\ufeff"', '"\\U0010ffff"', '"\\x7f\\x85"', "ünï", "'日本'", "😀", "'$(id)'", "'`id`'", "\"'; rm -rf /; '\"",
    "'${HOME}'", "'$HOME'", "'a && b'", "'a\\b'", "'#!x'", "'%s %d'", "'{0}'", "'{name}'", "'<master-0>'", "'a=b'",
    "'--flag'", "'-'", "'/'", "'../../etc/passwd'", "'/dev/null'", "'~/x'", "'http://[::1'", "'a:b:c'", "'a/b@c:d'",
    "'EOF'", "'PHALANX'", "'None'", "'nan'", "'[1, 2]'", "'{\"a\": 1}'", "'*'", "'**'", "'&a'", "'!b'",
    "|\n      a\n      b", ">-\n      a\n\n      b", "!!str 1", "!!int a", "!!int 7", "!!float 1", "!!bool x",
    "!!null x",
    "!!binary aGk=", "!!python/object:os.system x", "!!set {a}", "!!timestamp 2026-01-01", "!x y", "! 1", "*a", "*big",
    "&a 1", "[]", "{}", "[~]", "[[]]", "[{}]", "{'': 1}", "{a: ~}", "[1, a, ~, [], {}]", "[a, a]", "[1, 1.0, true]",
    "{a: {b: {c: 1}}}", "[[a, 1], [b, 2]]", "[[a]]", "[a, 1]", "[0, 1, 3]", "[1, 2, 0]", "[0, 1e400, 5]", "{0: a}",
    "{start: 0, stop: 1, step: 0}", "{start: 0, stop: 1, num: -3}", "{start: 0, stop: 1e300, step: 1}", "0:1e300:1",
    "0:1:0", "5:1:1", "0:1:1e-9", "1:0:nan", "[a, 0.5]", "[[a, 0.5], [b, .nan]]", "{requests: 1, limits: 2}",
    "{requests: 2, limits: 1}", "{requests: -1}", "{requests: 1e400}", "{limits: .nan}", "{index: 0}", "[{index: 0}]",
    "[{index: 99}]", "[{index: -1}]", "[{index: 0}, {index: 0}]", "[{index: '{{ i }}'}]", "[{name: a, type: int}]",
    "[{name: [a], type: str}]", "[{name: a, type: str, default: 1}]", "[{name: a, is_list: true}]", "100001", "512",
    "[{name: a, value: '{{ b }}'}]", "{a: '{{ b }}', b: '{{ a }}'}", "{image: x}", "{cmd: x}", "{dockerfile: D}",
)  # fmt: skip

EXPRESSIONS = (
    "lr", "a", "b", "missing", "a.b", "a['b']", "a[0]", "a[99]", "a[::-1]", "lr.real", "params", "params.lr", "1", "-1",
    "0", "1/0", "1//0", "5 % 0", "2**64", "2**99999", "9**9**9", "10**308*10", "1e400", "-1e400", "0.1+0.2", "'x'",
    "'x'*10", "'x'*10**9", "[0]*10**9", "(1,2)", "[1,'a',none]", "{'a': 1}", "{1: 2}", "{'a': {'b': [1]}}", "[]", "{}",
    "none", "true", "not a", "a if b else 1", "a if missing", "a ~ b", "a ~ a ~ a ~ a", "a in b", "a == b", "a < b",
    "range(3)", "range(10**9)", "range(-5)", "range(1, 10, 0)", "range('a')", "range(1.5)", "range(3)|list", "loop",
    "self", "cycler", "namespace", "lipsum()", "dict(a=1)", "a.__class__", "''.__class__.__mro__", "a.format(1)",
    "'%s' % a", "a() ", "a is defined", "a is number", "a is mapping", "a is divisibleby 0", "'\\ud800'", "'\\0'",
    "'\\n'", "'é'", "index", "jobs.1.outputs.x", "ops.a.outputs", "globals", "run.cmd", "data_paths.x", "outputs_path",
    "a-b", "lr-rate", "1 2", "a b", "a,", "*a", "**a", "a|", "", "'", '"', "}}", "a}}{{b", "(", "[", "((" * 50,
)  # fmt: skip
DEEP = (  # take longer
    "(" * 200 + "1" + ")" * 200, "-" * 500 + "1", "not " * 300 + "a", "a" + ".b" * 300, "a" + "[0]" * 300,
    "1" + "+1" * 1_000, "'a'" + "~'b'" * 20, "a" + "|string" * 200, "[" * 60 + "]" * 60, "9" * 5_000, "0x10", "1_000",
)  # fmt: skip
FILTERS = (
    "abs", "attr('x')", "batch(2)|list", "capitalize", "center(10**9)", "count", "d(5)", "default(5)",
    "default('', true)",
    "dictsort", "e", "escape", "filesizeformat", "first", "float", "float('x')", "forceescape", "format(1)",
    "groupby('a')",
    "indent", "indent(10**6)", "int", "int(base=16)", "int(base=99)", "int('x')", "items|list", "join", "join(',')",
    "join(5)", "join('x'*60000)", "last", "length", "list", "lower", "map('upper')|list", "max", "min", "pprint",
    "random", "reject('odd')|list", "replace('a','b')", "replace('','x'*1000)", "replace(1,2)", "reverse|list", "round",
    "round(2)", "round(400)", "round(-400)", "round(2,'up')", "round('a')", "round(1.5)", "safe", "select('odd')|list",
    "slice(3)|list", "sort", "string", "striptags", "sum", "sum('a')", "title", "tojson", "tojson(9)", "trim",
    "trim(1)",
    "truncate(5)", "unique|list", "upper", "urlencode", "urlize", "wordcount", "wordwrap(1)", "xmlattr", "nofilter", "",
    "iterations", "string|int|string|float", "lower|upper|length",
)  # fmt: skip
STATEMENTS = (
    "{% for i in range(5) %}{{ i }}{% endfor %}", "{% for i in range(10**9) %}x{% endfor %}", "{% if a %}b{% endif %}",
    "{% for i in a %}{{ i }}{{ loop.index }}{% endfor %}", "{% for i in range(999) %}{{ 'x'*60000 }}{% endfor %}",
    "{% for i in range(199) %}{% for j in range(199) %}x{% endfor %}{% endfor %}", "{% set x = 1 %}{{ x }}",
    "{% for k, v in a.items() %}{{ k }}{% endfor %}", "{% for i in a recursive %}{{ loop(i) }}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'x' %}", "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% raw %}{{ a }}{% endraw %}", "{% block x %}{% endblock %}", "{% call a() %}{% endcall %}", "{% do a %}", "{%",
    "{% filter upper %}a{% endfilter %}", "{% if %}", "{% endif %}", "{% for %}", "{# note #}", "{#", "{{",
    "}}", "{{}}",
    "{{ a", "a }}", "{{{ a }}}", "{{ '{{' }}", "{%- if a -%} x {%- endif -%}", "{{- a -}}", "{{+ a +}}",
    "{{ a }}{{ a }}",
    "{% for i in [1,2] if i > a %}{{ i }}{% else %}none{% endfor %}", "# for i in a", "${a}", "$a", "{a}", "%(a)s",
    "{% autoescape true %}{% endautoescape %}", "{% with a = 1 %}{% endwith %}", "{% trans %}x{% endtrans %}",
    "{% if a is b %}{% endif %}", "{% if a %}" * 9 + "{% endif %}" * 9, "{{ a }}" * 500, "{{ 'x' * 60000 }}" * 30,
)  # fmt: skip

LAUGHS = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]",
    *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]) + "\n"  # fmt: skip
PIECES = (
    ": ", "- ", "\n", "\n\n", "\n  ", "\n- ", "{", "}", "[", "]", ",", "&a ", "*a ", "!!str ", "!", "<<: *a", "---\n",
    "\n---\n", "\n...\n", "%YAML 1.1\n---\n", "%TAG ! x:\n---\n", "# note\n", "\t", "\r", "\r\n", "\x00",
    "\x07", "\x1b",
    "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", "\U0010ffff", "'", '"', "`", "@", "|", ">", "? ", "{{ a }}", "{{",
    "}}", "{%", "\\", "\\n", "0", "9" * 50, " " * 100, "a: ", "<<: {a: 1}\n", "<<: [*a, *a]\n",
)  # fmt: skip
PARAMS = (
    "lr=1", "a=1", "b=", "a=a=b", "a", "=1", "", " =1", "a =1", " a = 1 ", "a-b=1", "a.b=1", "a[0]=1", "1=1", "é=ü",
    "a={{ b }}", "a={{ a }}", "a={{", "a=[1, 2]", "a={b: 1}", "a=[", "a={", "a=&x 1", "a=*x", "a=!!python/object:x y",
    "a=" + "9" * 500, "a=" + "9" * 5_000, "a=1e400", "a=.nan", "a=true", "a=~", "a=007", "a=0x_", "a='1'", 'a="x"',
    "a=x\ny", "a\nb=1", "a=\x00", "\x00=1", "a=\x1b[31m", "a=" + "x" * 70_000, "a=" + "[" * 3_000, "a=\udc80",
    "\udcff=1",
    "a=\u2028", "a=😀", "<<=1", "params=1", "kind=job", "version=2", "a=2026-11-17", "a=1:10:2", "a=#x", "a=- b",
    "a=a: b", "a=|", "a=%", "a=@", "a=---", "a=" + "{a: " * 70 + "}" * 70, "x" * 300 + "=1", "--=1", "-f=x",
)  # fmt: skip


def template(rng: Random, names: list[str]) -> str:
    """The text of a template, valid or not, that often uses a param of the file."""
    if rng.random() < 0.25:
        return rng.choice(STATEMENTS)
    expression = rng.choice(names) if names and rng.random() < 0.5 else rng.choice(EXPRESSIONS)
    if rng.random() < 0.02:
        expression = rng.choice(DEEP)
    if rng.random() < 0.2:
        other = rng.choice(names) if names and rng.random() < 0.5 else rng.choice(EXPRESSIONS)
        expression = f"{expression} {rng.choice(('+', '-', '*', '/', '//', '%', '**', '~', 'and', 'or', '<'))} {other}"
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        expression = f"({expression}) | {rng.choice(FILTERS)}"
    inside = f"{{{{ {expression} }}}}"
    return inside if rng.random() < 0.6 else f"x {inside} y"


def quoted(text: str) -> str:
    """A text as a scalar in quotes."""
    return json.dumps(text, ensure_ascii=False)


def scalar(rng: Random, names: list[str]) -> str:
    """A value as it is written in a file."""
    chance = rng.random()
    if chance < 0.7:
        return rng.choice(SCALARS)
    if chance < 0.985:
        return quoted(template(rng, names))
    return rng.choice(LONG if chance < 0.996 else NESTED)


def key(rng: Random) -> str:
    return rng.choice(KEYS) if rng.random() < 0.8 else rng.choice(ODD_KEYS)


def typo(rng: Random, word: str) -> str:
    """The word with one letter dropped, doubled, swapped or replaced, or in another case."""
    if not word or word[0] in "\"'":
        return word + "s"
    at = rng.randrange(len(word))
    return rng.choice((
        word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:],
    word[:at] + rng.choice("aeiou_-") + word[at + 1 :],
        word.upper(), word.replace("_", "-"), word.replace("_", ""), word + "s", word.title(), f"{word} ",
    ))  # fmt: skip


def param(rng: Random, names: list[str]) -> str:
    """A value of -P: an odd pair, or an odd value of a param of the file."""
    if names and rng.random() < 0.8:
        value = rng.choice(PARAMS).partition("=")[2] if rng.random() < 0.6 else scalar(rng, names)
        return f"{rng.choice(names)}={value}"
    return rng.choice(PARAMS)
