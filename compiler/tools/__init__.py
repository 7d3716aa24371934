"""Framework-neutral halves of the commands around the compiler: lint, import, calibrate."""
