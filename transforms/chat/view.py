"""One reading of an answer's fields, and what readings need to know beside it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from transforms.chat.habits import Blanks, Habit
from transforms.chat.profile import ModelProfile
from transforms.chat.settings import thinking_is_off
from transforms.codes import IssueCode, Repair
from transforms.records import Exchange, Issue, Segment, ToolCall


@dataclass(frozen=True, slots=True)
class View:
    """One reading of an answer.

    Attributes:
        opens: The opening of the thought was sampled.
        ends: How many ends of the thought were sampled.
        section: A tool section read out of text.
        calls: Structured calls.
    """

    thought: str
    content: str
    ends: int = 0
    opens: bool = False
    section: tuple[Segment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    issues: tuple[Issue, ...] = ()

    def repaired(self, repair: Repair, **changes: object) -> "View":
        """This view with changes, and their name."""
        return replace(self, repairs=(*self.repairs, repair), **changes)  # type: ignore[arg-type]

    def with_issue(self, code: IssueCode, detail: str) -> "View":
        return replace(self, issues=(*self.issues, Issue(code, detail)))


@dataclass(frozen=True, slots=True)
class Asked:
    """What readings need to know beside the view."""

    exchange: Exchange
    profile: ModelProfile
    habit: Habit

    @property
    def thinks(self) -> bool:
        """Whether a thought is to be expected."""
        grammar = self.profile.answer
        return grammar.thought_end is not None and not (
            grammar.thought_is_optional or thinking_is_off(self.exchange.settings)
        )


Reading = Callable[[View, Asked], Iterator[View]]


def without_blank(text: str, asked: Asked) -> str:
    """The text without the blank that a host puts after the last marker, if it does."""
    spaced = asked.habit.blanks is Blanks.AROUND_MARKERS
    return text.removesuffix(" ") if spaced else text
