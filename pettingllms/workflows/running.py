"""One run of a workflow in a thread of its own, which waits at each request for its answer."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pettingllms.errors import MissingDependency, PettingLLMsError, counted, told
from pettingllms.types import Action
from pettingllms.workflows.definition import (
    Client,
    Score,
    Workflow,
    WorkflowDiverged,
    WorkflowFailure,
    WorkflowTimeout,
)
from pettingllms.workflows.isolation import BlocksLoop, Scope, awaited, variables
from pettingllms.workflows.wire import Answered, ChatRequest, RequestError, Sender

if TYPE_CHECKING:
    from pettingllms.workflows.endpoint import Endpoint

_MAX_SHOWN = 200
_GRACE_S = 1.0
"""Time for which an unknown request of a repeated run waits for the recorded ones to come."""
_STALL_S = 20.0
"""The same while some code of the run is on its way to a request, however slow the machine is."""
_QUIET_S = 0.05
"""Time for which threads of a run wait for each other to ask, so that the first is the first."""


class RecordedCall(NamedTuple):
    """A request and what it was answered with."""

    request: ChatRequest
    text: Action


class Reached(NamedTuple):
    """Where a run of a workflow is after its latest answer."""

    request: ChatRequest | None
    """What the run asks now; None when it has ended."""
    score: Score | None
    """What the outcome of the run is worth; None when it has not ended."""
    team: float
    """What the latest answer earned the team, by reports of the workflow."""
    local: float
    """What the latest answer earned its agent, by reports of the workflow."""
    parse_error: str | None
    """Why the latest answer could not be read, as the workflow reported it; else None."""


class _Waiting(NamedTuple):
    """A request that has no answer yet."""

    request: ChatRequest
    answer: Future[Answered]
    """The promise that the endpoint waits for."""


class WorkflowRun:
    """Runs a workflow from its start, gives it recorded answers, and stops at the next request.

    Its threads are those of the workflow, of the endpoint (`ask`, `fail`), and of whoever drives
    it (`answer`, `reached`, `close`).

    Args:
        workflow: What is run.
        task: The task as a JSON text.
        seed: See `Client.seed`.
        calls: Requests that must come, and their answers.
    """

    def __init__(
        self, workflow: Workflow, task: str, seed: int, calls: Sequence[RecordedCall]
    ) -> None:
        self._workflow, self._task, self._seed = workflow, task, seed
        self.models: Mapping[str, str] = workflow.models
        self.kept: dict[str, Sequence[Any]] = {}
        self._calls = list(calls)
        self._open = dict(enumerate(self._calls))
        """Calls that have not come yet, by number."""
        self._waiting: list[_Waiting] = []
        self._score: Score | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._unsettled: set[str] = set()
        """Places of requests on their way, and of answers that coroutines may not know yet."""
        self._heard: list[Sender] = []
        """Who has asked, in the order of first requests."""
        self._was_left = False
        """Whether a client of the workflow has left before it received an answer."""
        self._team = self._local = 0.0
        self._parse_error: str | None = None
        self._changed = threading.Condition()
        self._latest_s = time.monotonic()
        self._endpoint = _endpoint()
        self._base_url = self._endpoint.open(self)
        self._scope = Scope(
            base_url=self._base_url,
            api_key=self._endpoint.api_key,
            seed=seed,
            clock_s=workflow.clock_s,
            environ={**workflow.environ, **variables(self._base_url, self._endpoint.api_key)},
            addresses=tuple(workflow.addresses),
            watcher=self,
        )
        # A daemon: what waits in somebody else's code must not keep the process from its end.
        threading.Thread(target=self._main, name="pettingllms-workflow", daemon=True).start()

    # The workflow's own thread ------------------------------------------------------------------

    def _main(self) -> None:
        client = Client(
            base_url=self._base_url,
            api_key=self._endpoint.api_key,
            seed=self._seed,
            roles=tuple(self.models),
            _report=self._report,
        )
        score: Score | None = None
        failure: BaseException | None = None
        try:
            outcome = self._scope.run(partial(self._outcome, client))
            # The task is read anew: what the code has done to its copy is not the reward's.
            score = self._workflow.score(json.loads(self._task), outcome)
        except self._workflow.misfit_errors as error:
            score, failure = self._misfit(error)
        except BaseException as error:  # noqa: BLE001  the boundary to somebody else's code
            failure = error
        with self._changed:
            self._score = score
            self._changed.notify_all()
        if failure is not None:
            self.fail(failure)

    def _outcome(self, client: Client) -> Any:
        try:
            try:
                outcome = self._workflow.run(json.loads(self._task), client)
            except BlocksLoop:
                self._restart()
                outcome = self._workflow.run(json.loads(self._task), client)
            return asyncio.run(awaited(outcome)) if inspect.isawaitable(outcome) else outcome
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
            return None  # it has done what it wanted to

    def _restart(self) -> None:
        """Forget what the code has asked so far: it begins again, and gets all answers again."""
        with self._changed:
            self._refuse_waiting()
            self._unsettled.clear()
            self._open = dict(enumerate(self._calls))
        self._scope.restart()

    def _misfit(self, error: Exception) -> tuple[Score | None, Exception | None]:
        """The score of a run that an answer ended; before any answer, nobody is to blame."""
        if not self._calls:
            return None, error
        self._parse_error = f"{type(error).__name__}: {error}"
        return Score(self._workflow.misfit_reward, success=False), None

    def _report(self, local: float, team: float, parse_error: str | None) -> None:
        if not self._workflow.step_rewards:
            raise WorkflowFailure(
                "client.reward was called, but the workflow does not declare it; set "
                "step_rewards=True of the Workflow"
            )
        with self._changed:
            if not self._calls:
                raise WorkflowFailure("client.reward was called before anything was answered")
            if not self._open:  # else it is about an answer before the branch, which is paid
                self._local += local
                self._team += team
                self._parse_error = parse_error or self._parse_error

    # Threads of the endpoint --------------------------------------------------------------------

    def agent_of(self, sender: Sender) -> str:
        """The agent that a request asks.

        Raises:
            RequestError: It is none of the team.
        """
        with self._changed:
            # A name stays, and a system prompt may show what has changed.
            known = sender._replace(model="", system="") if sender.agent else sender
            if known not in self._heard:
                self._heard.append(known)
            return self._workflow.agent_of(sender, self._heard.index(known) + 1)

    def ask(self, request: ChatRequest, *, is_repeated: bool = False) -> Future[Answered]:
        """A recorded answer, or the promise of one; a repeated request gets the same."""
        with self._changed:
            self._latest_s = time.monotonic()
            self._unsettled.discard(request.place)
            waiting = _Waiting(request, Future())
            number = self._recorded(request, is_repeated)
            if number is not None and not self._is_over():
                waiting.answer.set_result(self._take(number, request))
                return waiting.answer
            self._waiting.append(waiting)
            if self._is_over():
                self._refuse_waiting()
            self._changed.notify_all()
            return waiting.answer

    def _recorded(self, request: ChatRequest, is_repeated: bool) -> int | None:
        """Number of the call that a request repeats."""
        # A repeated one may ask for an answer that was sent, and did not come.
        known = dict(enumerate(self._calls)) if is_repeated else self._open
        for number, call in known.items():
            # Where places are unknown, by what is asked: requests may overtake each other.
            is_known = request.place and call.request.place
            if call.request == request or (not is_known and call.request.is_like(request)):
                return number
        return None

    def _match_alike(self) -> bool:
        """Give a recorded answer to a request that asks the same from another place."""
        for waiting in self._waiting:
            for number, call in self._open.items():
                if call.request.is_like(waiting.request):
                    self._waiting.remove(waiting)
                    waiting.answer.set_result(self._take(number, waiting.request))
                    return True
        return False

    def forget(self, answer: Future[Answered]) -> None:
        """Forget a request whose client has left; what was not received an equal one will get."""
        with self._changed:
            self._was_left = True
            self._waiting = [one for one in self._waiting if one.answer is not answer]
            if answer.done() and answer.exception() is None:
                number = answer.result().number
                self._open[number] = self._calls[number]
            self._changed.notify_all()

    # Code of the workflow, as `Watcher` says -----------------------------------------------------

    def sent(self, place: str) -> None:
        """See `Watcher`."""
        with self._changed:
            self._unsettled.add(place)

    def settled(self, place: str) -> None:
        """See `Watcher`."""
        with self._changed:
            self._unsettled.discard(place)
            self._changed.notify_all()

    def withdrawn(self, place: str) -> None:
        """Forget a request that the workflow itself has cancelled: it is nobody's turn."""
        with self._changed:
            self._was_left = True
            self._waiting = [one for one in self._waiting if one.request.place != place]
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._is_closed or self._failure is not None

    def fail(self, error: BaseException) -> None:
        """End the run: every request that waits, or comes, is refused."""
        with self._changed:
            self._failure = self._failure or error
            self._refuse_waiting()
            self._changed.notify_all()

    def _refuse_waiting(self) -> None:
        while self._waiting:
            told = "this run of the workflow has ended: nothing answers any more"
            self._waiting.pop().answer.set_exception(RequestError(told, 410))

    def _take(self, number: int, request: ChatRequest) -> Answered:
        """Give a recorded answer; what is reported from the last one on counts."""
        self._latest_s = time.monotonic()
        if request.place in self._scope.awaited:
            self._unsettled.add(request.place)
        text = self._calls[number].text
        self._open.pop(number, None)
        # Earlier reports were paid to the step before.
        self._team = self._local = 0.0
        self._parse_error = None
        self._changed.notify_all()
        return Answered(text, number)

    # Whoever drives it --------------------------------------------------------------------------

    def answer(self, call: RecordedCall) -> None:
        """Answer the request that `reached` returned, at once or when its client asks again."""
        with self._changed:
            number = len(self._calls)
            self._open[number] = call
            self._calls.append(call)
            waiting = next((one for one in self._waiting if one.request == call.request), None)
            if waiting is not None:
                self._waiting.remove(waiting)
                waiting.answer.set_result(self._take(number, waiting.request))

    @property
    def has_missed(self) -> bool:
        """Whether the workflow did not wait for one of its answers, and failed or went on."""
        return bool(self._open) and (self._was_left or self._failure is not None)

    def reached(self) -> Reached:
        """Wait for the next request or the end.

        Raises:
            WorkflowFailure: There will be neither, or it has not asked what was recorded.
        """
        try:
            with self._changed:
                self._wait()
                if self._score is not None:
                    self._leave()
                # Of several requests the one that was sent first, by its place.
                waiting = sorted(self._waiting, key=lambda one: _order(one.request.place))
                request = None if self._score else waiting[0].request
                return Reached(request, self._score, self._team, self._local, self._parse_error)
        except BaseException:  # also where whoever waits is interrupted: nobody else has this run
            self.close()
            raise

    def close(self) -> None:
        """Let the run go: whatever it still asks is refused."""
        with self._changed:
            self._is_closed = True
            self._refuse_waiting()
            self._changed.notify_all()
        self._leave()

    def _leave(self) -> None:
        self._scope.close()
        self._endpoint.close(self._base_url)

    def _wait(self) -> None:
        while True:
            if self._failure is not None:
                raise _explained(self._failure) from self._failure
            if self._open and self._score is not None:
                raise WorkflowDiverged(self._difference())
            is_known = self._waiting and not self._open
            if self._score is not None or (is_known and self._is_settled()):
                return
            # Of requests that are sent at the same time any may come first, so that another one
            # than the recorded one gets some time in which the recorded one may still come.
            is_busy = not is_known and (self._unsettled or self._busy_threads())
            grace_s = _STALL_S if is_busy else _GRACE_S
            limit_s = min(self._workflow.timeout_s, grace_s if self._waiting else math.inf)
            left_s = self._latest_s + limit_s - time.monotonic()
            if left_s <= 0 and is_known:
                return  # of coroutines whose loop has ended nobody hears
            if left_s <= 0 and self._waiting:
                if not self._match_alike():
                    raise WorkflowDiverged(self._difference())
            elif left_s <= 0:
                raise WorkflowTimeout(
                    f"the workflow neither asked nor ended within {self._workflow.timeout_s:g} s "
                    f"after {counted(len(self._calls) - len(self._open), 'answer')} (timeout_s)"
                )
            else:
                self._changed.wait(min(left_s, _QUIET_S) if is_known else left_s)

    def _is_settled(self) -> bool:
        """Whether it is known who asks now: the first of them is next, whichever came first.

        Requests on their way are waited for, and so are coroutines that may cancel others when they
        know the last answer. How far threads are nobody says: they get a while.
        """
        is_quiet = time.monotonic() - self._latest_s >= _QUIET_S
        return not self._unsettled and (is_quiet or len(self._scope.threads) < 2)

    def _busy_threads(self) -> set[str]:
        """Places of threads that neither wait for an answer nor have begun one that has not ended.

        Such a thread may still ask.
        """
        asking = {one.request.place.partition(":")[0] for one in self._waiting}
        places = asking | self._scope.threads
        parents = {place.rpartition(".")[0] for place in places}
        return self._scope.threads - asking - parents

    def _difference(self) -> str:
        number, call = next(iter(self._open.items()))
        wanted = f"request {number} to {call.request.agent} with {_shown(call.request)}"
        if not self._waiting:
            return f"the workflow was run again and ended without {wanted}"
        got = self._waiting[0].request
        return (
            f"the workflow was run again and asked {got.agent} with {_shown(got)} instead of "
            f"{wanted}. It must depend on the task, client.seed and the answers only"
        )


def _endpoint() -> Endpoint:
    """The endpoint of this process. Not imported above: its client takes a second."""
    try:
        from pettingllms.workflows.endpoint import shared_endpoint
    except ModuleNotFoundError as error:
        raise MissingDependency("the endpoint of workflows", error.name or "", "cli") from error
    return shared_endpoint()


def _order(place: str) -> list[int]:
    return [int(part) for part in re.split(r"[.:]", place) if part]


def _explained(failure: BaseException) -> WorkflowFailure:
    if isinstance(failure, WorkflowFailure):
        return failure
    what = "" if isinstance(failure, PettingLLMsError) else "the workflow raised "
    return WorkflowFailure(f"{what}{told(failure)}")


def _shown(request: ChatRequest) -> str:
    text = repr(request.messages[-1].content)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
