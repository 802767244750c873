"""OpenTelemetry traces: a span for every request, with tokenization, queue and inference in it."""

from collections.abc import Mapping
from threading import Thread
from time import perf_counter, time_ns
from typing import Any

from bertsmith import __version__
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.serve.service import Usage

NANO = 1_000_000_000
LAST = 3.0  # seconds to send the last spans


class Traces:
    """Writes spans when requests are finished; they join the trace of the request's headers."""

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import propagate, trace

            self._api, self._extract = trace, propagate.extract
            provider = provider or _provider()
        except ImportError as error:
            message = (
                f"{setting_name('traces')} needs {error.name}: pip install 'bertsmith[traces]'"
            )
            raise BertsmithError(message) from error
        self._provider = provider
        self._tracer = provider.get_tracer("bertsmith.serve", __version__)

    def write(self, usage: Usage, entry: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> str:
        """Write the spans of a request; return the id of its trace."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()
        }
        zero = time_ns() - int(perf_counter() * NANO)
        span = self._tracer.start_span(
            f"{entry['method']} {usage.route or 'other'}",
            context=self._extract(carrier),
            kind=self._api.SpanKind.SERVER,
            start_time=zero + int(usage.start * NANO),
            attributes={
                "http.request.method": entry["method"],
                "http.route": usage.route,
                "http.response.status_code": entry["status"],
                **{
                    f"bertsmith.{name}": entry[name]
                    for name in ("request_id", "client", "model", "tokens")
                    if entry[name] is not None
                },
            },
        )
        if entry["status"] >= 500:
            span.set_status(self._api.StatusCode.ERROR)
        inside = self._api.set_span_in_context(span)
        for name, begin, end in usage.phases:
            child = self._tracer.start_span(
                name, context=inside, start_time=zero + int(begin * NANO)
            )
            child.end(zero + int(end * NANO))
        span.end()
        return f"{span.get_span_context().trace_id:032x}"

    def close(self) -> None:
        """Send what is left, but do not wait long for a collector that does not answer."""
        sending = Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST)


def _provider() -> Any:
    """A provider that sends spans by OTLP, as the OTEL_... environment variables say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource({SERVICE_NAME: "bertsmith"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=Resource.create().merge(resource))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
