"""Run and Beat, and every act on a run (pause, settle, fork, …) as a function that commands and pages share."""
