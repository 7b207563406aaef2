"""Jobs in compiled code: what a job is, how threads share its rows, how helpers wait for one."""
