"""softmax and its family: functions, derivatives, groups, diagnoses."""
