"""Command ``parc explain``."""

from __future__ import annotations

import click


def _complete_topic(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from parc.compiler.report.text.explain import explainable_topics

    return [topic for topic in explainable_topics() if topic.startswith(incomplete)]


@click.command("explain")
@click.argument("topic", metavar="CODE|FIELD|TERM", shell_complete=_complete_topic)
def command(topic: str) -> None:
    """Explain a diagnostic code, a spec field, or a term of an estimate.

    Examples: parc explain PARC-D01, parc explain layout.vpp (or vpp), parc explain
    activations_bytes, parc explain mfu.
    """
    from parc.compiler.report.text.explain import UnknownTopic, explain_topic

    try:
        click.echo(explain_topic(topic), nl=False)
    except UnknownTopic as error:
        raise click.UsageError(str(error)) from None
