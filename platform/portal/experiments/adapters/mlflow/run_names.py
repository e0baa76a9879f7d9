"""Names for runs that were given none: easy to say, easy to tell apart."""

import re
import secrets

_QUALITIES = re.findall(
    r"\w+",
    """able amber ample arctic azure bold brave bright brisk calm clear clever coral cosmic crisp
    daring deep eager early fair fast fine fleet fond frank fresh gentle glad golden grand happy
    hardy honest humble jolly keen kind light lively loyal lucky mellow merry mild neat noble
    patient polite proud quick quiet rapid ready royal sharp shiny silent silver sincere smart
    smooth steady sunny swift tidy trusty upbeat vivid warm wise witty""",
)
_THINGS = re.findall(
    r"\w+",
    """anchor badger beacon beaver bison breeze brook canyon cedar cliff comet crane creek dolphin
    dune eagle ember falcon fern finch fjord forest fox garnet glacier grove gull harbor hawk hazel
    heron hill island ivy jetty lagoon lake lark maple marsh meadow meteor mole moon moss oak ocean
    orca otter owl pebble pine planet pond prairie quartz raven reef ridge river robin sail seal
    shore sparrow spruce star stone stream summit swan tern thistle tide tulip valley walrus wave
    willow wren""",
)


def new_run_name() -> str:
    """Return a name such as `calm-otter-412`."""
    number = secrets.randbelow(900) + 100
    return f"{secrets.choice(_QUALITIES)}-{secrets.choice(_THINGS)}-{number}"
