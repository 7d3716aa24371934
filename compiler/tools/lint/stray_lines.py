"""Report lines of flags that bash does not pass to the command above (L43)."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.tools.importers.shell_words import scan_script
from parc.compiler.tools.lint.script import LintedScript


def check_stray_lines(script: LintedScript, sink: Sink) -> None:
    """Report lines that start with a flag, but are a command of their own for bash."""
    lines = script.text.split("\n")
    for line in scan_script(script.text, script.name).stray:
        first, before = line.words[0], line.before
        if line.is_comment:
            reason = "this comment ends the command"
            fix = "move the comment above the command"
        elif lines[before.line - 1].rstrip().endswith("\\"):
            reason = "a blank follows the backslash, so the command ends here"
            fix = f"remove the blank after the backslash in line {before.line}"
        else:
            reason = "this line does not end with a backslash"
            fix = f"end line {before.line} with a backslash"
        finding = Finding(
            f"bash does not pass {first.text} to the command above",
            label="bash runs this line as a command of its own",
            fix=fix,
            causes=(Cause("", reason, before),),
        )
        sink.report("L43", finding, span=first.span)
