"""All that the choice of the draft length takes for granted before anything is measured.

Guesses to start from and time constants, chosen on the recorded texts that tests/speculative/replay.py plays.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constants:
    """Times are in plain steps (the target's decode of one token), lengths of memories in observations."""

    # What a draft model is like.
    confident: float = 0.9
    """A token that is expected to be accepted more often than this is confident, another doubtful."""
    enter: float = 0.6
    """The share of confident tokens at the start of a draft and after a doubtful token, to begin with."""
    stay: float = 0.8
    """The share of confident tokens after a confident one, to begin with."""
    confident_accepted: float = 0.98
    """The acceptance of confident tokens, to begin with."""
    doubtful_accepted: float = 0.55
    """The acceptance of doubtful tokens, to begin with."""
    outlook_weight: float = 10
    """How many observations each of these four guesses is worth."""
    share_memory: float = 24
    """Over how many tokens the two shares are averaged."""
    acceptance_memory: float = 64
    """Over how many tokens the two acceptances are averaged."""

    # How far its probabilities are to be believed.
    trust: float = 0.98
    """How likely a draft is at first the one that its calibration was learned from."""
    broken: float = 0.15
    """How often a token is accepted of a draft that cannot be trusted."""
    hazard: float = 0.001
    """How often, per verified token, a draft becomes trustworthy or ceases to be."""
    surest: float = 0.95
    """No single token tells more about the trust in a draft than one expected to be accepted this often."""
    least_trust: float = 0.15
    """With less trust nothing is learned about a draft's probabilities; a probe gives it as much again."""

    # What time is worth.
    margin: float = 1.05
    """How much faster than plain decoding a draft has to promise to be: luck alone is no reason to draft."""
    first_tokens: float = 4.0
    """Tokens, and plain steps, that the average rate starts from."""
    rate_memory: float = 16.0
    """Rounds over which the rate is averaged."""

    # When drafts that take time are given up, and tried again.
    patience: float = 3.0
    """Plain steps lost without a round that won, after which streaks better than usual are forgotten."""
    probe_share: float = 0.01
    """The share of all time that probes may cost."""
    probe_stay: float = 0.95
    """How likely a probe takes a streak of confident tokens to go on: what it is looking for is a text like that."""
    rounds: float = 64.0
    """How many rounds a text is expected to go on, and one that is longer as many again as it has had. Within them it
    has to pay that the draft reads the prompt too."""

    # How much drafts that take no time may lose.
    budget: float = 3.5
    """How many plain steps their verification may lose in a text before it has won any."""
    largest_budget: float = 8.0
    """The same however much it has won: what was copied well so far may end any time."""
    budget_growth: float = 0.04
    """Plain steps that it may lose more with each round, up to those at first."""


CONSTANTS = Constants()
