"""Tests. Whoever starts them in the background has Ctrl-C ignored, and what they start would ignore it as well."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
