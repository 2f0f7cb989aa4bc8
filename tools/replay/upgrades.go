package main

import (
	"fmt"

	"supervisor/statemachine"
)

// upgradeWords is words for the records of an upgrade; ok is false for others.
func upgradeWords(event statemachine.Event) (said string, ok bool) {
	switch e := event.(type) {
	case *statemachine.UpgradeRequested:
		return fmt.Sprintf("from %s to what is in %s", e.From, argument(e.Path)), true
	case *statemachine.UpgradeRejected:
		return e.Error, true
	case *statemachine.UpgradeHandoff:
		return fmt.Sprintf("from %s to %s, %s", e.From, e.To, processes(e.Procs)), true
	case *statemachine.UpgradeAdopted:
		return fmt.Sprintf("version %s, %s, blackout %s", e.To, processes(e.Procs), span(e.BlackoutUS)), true
	case *statemachine.UpgradeVerified:
		if e.Error != "" {
			return e.Error, true
		}
		return fmt.Sprintf("through record %d", e.ThroughSeq), true
	case *statemachine.UpgradeRolledBack:
		return fmt.Sprintf("from %s to %s: %s", e.From, e.To, e.Error), true
	}
	return "", false
}

func processes(n int) string { return plural(n, "process", "processes") }
