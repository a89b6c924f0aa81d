"""Seams for OpenTelemetry: spans of requests, messages, transactions and steps, which one trace of a request has.

Seams are installed once, where an object is made, as those of `nova_lite.base.faults` are. Without ``[otel] endpoint``
each function here returns its argument unchanged, and nothing of OpenTelemetry is imported. Only the context of each
message has one attribute more to look at.

The id of a trace is the uuid of the request id. So a step that is repeated from the database, hours later and by
another conductor, is in the trace of its request, and `nova-lite-manage trace` has the same id. Messages carry the id
of the span that sent them. Work that belongs to no request, such as heartbeats, has no spans.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import functools
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from nova_lite.base import exceptions, version
from nova_lite.base.context import RequestContext, is_traceparent
from nova_lite.base.futures import ResponseFuture

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: Kinds of spans, by OpenTelemetry's names.
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"

_REQUEST_ID = re.compile(r"req-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
#: Bits of a request id's uuid that are random and come first. The sampler decides by them.
_RANDOM_BITS = 48
#: Seconds for which spans are collected, and that the collector may take.
_DELAY, _TIMEOUT = 1.0, 5.0

#: OpenTelemetry's tracer; None while tracing is off.
_tracer: Any = None
#: The id of the trace of the next root span.
_trace_id: contextvars.ContextVar[int | None] = contextvars.ContextVar("trace_id", default=None)


def is_on() -> bool:
    return _tracer is not None


def start(conf: Any, binary: str) -> None:
    """Begin to export the spans of this daemon if ``[otel] endpoint`` is set. Raises `ConfigurationError`."""
    options = conf.otel
    if not options.endpoint or is_on():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise exceptions.ConfigurationError(
            reason=f"[otel] endpoint needs the package's extra otel: {error.name or error} is missing."
        ) from error
    exporter = OTLPSpanExporter(endpoint=options.endpoint, timeout=_TIMEOUT, certificate_file=options.ca_file)
    attributes = {"service.name": binary, "service.version": version.VERSION, "host.name": conf.host}
    export(BatchSpanProcessor(exporter, schedule_delay_millis=_DELAY * 1000), attributes, options.sample_ratio)


def export(processor: Any, attributes: dict[str, str], ratio: float = 1.0) -> None:
    """Let a processor of OpenTelemetry have all spans of this process. ``ratio``: of the requests with spans."""
    global _tracer
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased

    provider = TracerProvider(
        resource=Resource.create(attributes), sampler=ParentBased(_sampler(ratio)), id_generator=_id_generator()
    )
    provider.add_span_processor(processor)
    _tracer = provider.get_tracer("nova_lite", version.VERSION)


def stop() -> None:
    """End tracing in this process. Seams that are installed make no more spans."""
    global _tracer
    _tracer = None


def _sampler(ratio: float) -> Any:
    """Return a sampler that decides by the random part of the id: the same in each daemon."""
    from opentelemetry.sdk.trace import sampling

    class RequestSampler(sampling.Sampler):  # type: ignore[misc,unused-ignore]
        def should_sample(self, parent_context: Any, trace_id: int, *arguments: Any, **others: Any) -> Any:
            is_in = trace_id >> (128 - _RANDOM_BITS) < ratio * 2**_RANDOM_BITS
            decision = sampling.Decision.RECORD_AND_SAMPLE if is_in else sampling.Decision.DROP
            return sampling.SamplingResult(decision)

        def get_description(self) -> str:
            return f"RequestSampler({ratio})"

    return RequestSampler()


def _id_generator() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class RequestIds(RandomIdGenerator):  # type: ignore[misc,unused-ignore]
        def generate_trace_id(self) -> int:
            return _trace_id.get() or super().generate_trace_id()

    return RequestIds()


# --- spans


def trace_id_of(request_id: str | None) -> int | None:
    """Return the id of a request's trace."""
    found = _REQUEST_ID.fullmatch(request_id or "")
    return uuid.UUID(found[1]).int if found else None


@contextlib.contextmanager
def _span(
    name: str, kind: str, parent: str | None, trace_id: int | None, links: Sequence[str] = (), **attributes: str
) -> Iterator[Any]:
    """Run the block in a span. ``parent``: a traceparent; None: the current span, or a new trace ``trace_id``."""
    from opentelemetry import context as otel
    from opentelemetry import trace

    given = {f"nova_lite.{key}": value for key, value in attributes.items() if value}
    made_links = [trace.Link(_span_context(link)) for link in links]
    around = otel.get_current()
    if parent is not None:
        around = trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)))
    elif trace_id is not None and _current_trace() != trace_id:
        around = otel.Context()
    token = _trace_id.set(trace_id)
    try:
        span = _tracer.start_span(
            name, around, kind=trace.SpanKind[kind], attributes=given, links=made_links, record_exception=False
        )
    finally:
        _trace_id.reset(token)
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except Exception as error:
            _fail(span, error)
            raise


def _fail(span: Any, error: BaseException) -> None:
    """Mark a span as failed, by the class of the error alone: messages may name what users chose."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, type(error).__name__.removesuffix("_Remote")))


def _span_context(traceparent: str) -> Any:
    from opentelemetry import trace

    _, trace_id, span_id, flags = traceparent.split("-")
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))


def _current() -> Any:
    """Return the context of the current span, or None."""
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def _current_trace() -> int | None:
    found = _current()
    return found.trace_id if found is not None else None


def _traceparent(found: Any) -> str:
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"


# --- seams


def app(wrapped: T, request_id: str, route_of: Callable[[dict[str, Any]], str]) -> T:
    """Return a WSGI application with a span for each request. ``request_id``: key of ``environ``.

    ``route_of``: the pattern of the URL, once the application has been called; never the URL, in which names may be.
    """
    if not is_on():
        return wrapped

    def traced(environ: dict[str, Any], start_response: Any) -> Any:
        if not is_on():
            return wrapped(environ, start_response)  # type: ignore[operator]
        identifier, method = environ[request_id], environ["REQUEST_METHOD"]
        client = environ.get("HTTP_TRACEPARENT", "")
        links = [client] if is_traceparent(client) else []
        with _span(method, SERVER, None, trace_id_of(identifier), links, request_id=identifier) as span:
            span.set_attribute("http.request.method", method)

            def start(status: str, *arguments: Any) -> Any:
                code = int(status.split(" ", 1)[0])
                span.set_attribute("http.response.status_code", code)
                if code >= 500:
                    _fail(span, RuntimeError())
                return start_response(status, *arguments)

            result = wrapped(environ, start)  # type: ignore[operator]
            if route := route_of(environ):
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            return result

    return traced  # type: ignore[return-value]


def sender(transport: T) -> T:
    """Return a `nova_lite.rpc.client.Sender` with a span for each message of a request."""
    return _Sender(transport) if is_on() else transport  # type: ignore[return-value]


class _Sender:
    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def call(self, message: Any) -> Any:
        with self._traced(message, CLIENT) as sent:
            return self._transport.call(sent)

    def cast(self, message: Any) -> None:
        with self._traced(message, PRODUCER) as sent:
            self._transport.cast(sent)

    @staticmethod
    @contextlib.contextmanager
    def _traced(message: Any, kind: str) -> Iterator[Any]:
        """Provide the message with the span that sends it. A message of no request stays as it is."""
        context: RequestContext = message.context
        current = _current_trace() if is_on() else None
        if not is_on() or (current is None and context.traceparent is None):
            yield message
            return
        wanted = trace_id_of(context.request_id)
        parent = None if current is not None and current == wanted else context.traceparent
        name = f"{message.topic}.{message.method}"
        attributes = {"server": message.server or "", "request_id": context.request_id or ""}
        with _span(name, kind, parent, wanted, **attributes) as span:
            sent = copy.copy(context)
            sent.traceparent = _traceparent(span.get_span_context())
            yield dataclasses.replace(message, context=sent)


def handler(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return the function of an RPC method with a span for each message that carries a parent.

    ``context``, its first argument, then carries this span. A `ResponseFuture` ends the span with its response.
    """
    if not is_on():
        return function

    @functools.wraps(function)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        context: Any = args[0]
        parent = context.traceparent
        if parent is None or not is_on():
            return function(*args, **kwargs)
        uuid_of = kwargs.get("instance_uuid")
        instance = uuid_of if isinstance(uuid_of, str) else ""
        with _span(name, SERVER, parent, None, request_id=context.request_id or "", instance=instance) as span:
            context.traceparent = _traceparent(span.get_span_context())
            result = function(*args, **kwargs)
            return result.map(_named(f"{name} reply", context)) if isinstance(result, ResponseFuture) else result  # type: ignore[return-value]

    return traced


def _named(name: str, context: RequestContext) -> Callable[[Callable[[], Any]], Any]:
    """Return what delivers a later response in a span of its own."""

    def deliver(get: Callable[[], Any]) -> Any:
        if not is_on():
            return get()
        with _span(name, INTERNAL, context.traceparent, None, request_id=context.request_id or ""):
            return get()

    return deliver


def work(name: str, context: RequestContext, instance: str, function: Callable[P, R]) -> Callable[P, R]:
    """Return a step of an operation, which another thread will run, with a span in the trace of its request."""
    if not is_on():
        return function
    wanted = trace_id_of(context.request_id)
    parent = context.traceparent
    is_own = parent is not None and (wanted is None or int(parent.split("-")[1], 16) == wanted)
    links = [] if parent is None or is_own else [parent]

    @functools.wraps(function)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        attributes = {"request_id": context.request_id or "", "instance": instance}
        with _span(name, INTERNAL, parent if is_own else None, wanted, links, **attributes):
            return function(*args, **kwargs)

    return traced


def batches(target: Any, method: str, name: str) -> None:
    """Give a method that takes requests with a ``context`` each a span, in the trace of the first one.

    The span has links to the others.
    """
    if not is_on():
        return
    function = getattr(target, method)

    @functools.wraps(function)
    def traced(requests: Sequence[Any]) -> Any:
        if not requests or not is_on():
            return function(requests)
        first, *others = [request.context for request in requests]
        links = [other.traceparent for other in others if other.traceparent not in (None, first.traceparent)]
        with _span(name, INTERNAL, first.traceparent, trace_id_of(first.request_id), links):
            return function(requests)

    setattr(target, method, traced)


def carried(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that another thread runs in the current span."""
    if not is_on():
        return function
    present = contextvars.copy_context()
    return lambda *args, **kwargs: present.run(function, *args, **kwargs)


def transactions(database: Any) -> None:
    """Wrap `nova_lite.db.core.engine.Database.write` and ``read``: each transaction of a request has a span."""
    if not is_on():
        return
    for method in ("write", "read"):
        setattr(database, method, _transaction(method, getattr(database, method)))


def _transaction(method: str, run: Callable[..., Any]) -> Callable[..., Any]:
    def traced(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not is_on() or _current() is None:
            return run(function, *args, **kwargs)
        name = getattr(getattr(function, "func", function), "__name__", "function").lstrip("_")
        with _span(f"{method} {name}", CLIENT, None, None):
            return run(function, *args, **kwargs)

    return traced


__all__ = [
    "app",
    "batches",
    "carried",
    "export",
    "handler",
    "is_on",
    "sender",
    "start",
    "stop",
    "trace_id_of",
    "transactions",
    "work",
]
