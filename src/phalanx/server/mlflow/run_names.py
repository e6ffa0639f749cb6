"""Names of runs that their clients do not name, such as `calm-heron-417`."""

from __future__ import annotations

import secrets

_ADJECTIVES = """able amber ample bold brave brief bright brisk calm clear clever cosmic crisp curious daring deep eager
early fair fast fine firm fond free fresh gentle glad golden grand green happy hidden honest humble jolly keen kind late
light little lively lucky lunar mellow merry mighty mild misty modest neat nimble noble open patient plain polite proud
quick quiet rapid rare ready rising royal rustic sharp shiny silent silver simple sleek smart smooth solar solid steady
still stout sunny swift tall tidy tiny vast vivid warm wild wise witty young"""
_NOUNS = """acorn alder aspen badger basin beacon bear beaver birch bison breeze brook canyon cedar cloud comet condor
coral cove crane creek delta dune eagle elm ember falcon fern finch fjord forest fox gale glacier grove gull harbor hare
hawk heron hill ibis island ivy jay juniper kestrel lagoon lake lark laurel ledge lily lynx maple marsh meadow mesa moon
moss newt oak ocean orca osprey otter owl panda peak pine plover pond prairie puffin quail raven reef ridge river robin
rook sage seal shore sky sparrow spring spruce stone stork storm summit swan tern thrush tide trail trout valley wave
willow wolf wren yak"""


def generated_name() -> str:
    return f"{secrets.choice(_ADJECTIVES.split())}-{secrets.choice(_NOUNS.split())}-{secrets.randbelow(1000)}"
