package statemachine

// newEvent gives the empty event of a kind, or nil for an unknown one.
func newEvent(k Kind) Event {
	switch k {
	case KindAgentStarted:
		return &AgentStarted{}
	case KindAgentStopped:
		return &AgentStopped{}
	case KindVerb:
		return &Verb{}
	case KindRequested:
		return &Requested{}
	case KindStarted:
		return &Started{}
	case KindStartFailed:
		return &StartFailed{}
	case KindStdin:
		return &Stdin{}
	case KindStdinClosed:
		return &StdinClosed{}
	case KindSignalled:
		return &Signalled{}
	case KindResized:
		return &Resized{}
	case KindDeadline:
		return &Deadline{}
	case KindExited:
		return &Exited{}
	case KindDrained:
		return &Drained{}
	case KindOrphaned:
		return &Orphaned{}
	case KindLost:
		return &Lost{}
	case KindCollected:
		return &Collected{}
	case KindDelivered:
		return &Delivered{}
	case KindSessionOpened:
		return &SessionOpened{}
	case KindSessionResumed:
		return &SessionResumed{}
	case KindSessionLeft:
		return &SessionLeft{}
	case KindSessionClosed:
		return &SessionClosed{}
	case KindSnapshot:
		return &Snapshot{}
	case KindPruned:
		return &Pruned{}
	case KindUpgradeRequested:
		return &UpgradeRequested{}
	case KindUpgradeRejected:
		return &UpgradeRejected{}
	case KindUpgradeHandoff:
		return &UpgradeHandoff{}
	case KindUpgradeAdopted:
		return &UpgradeAdopted{}
	case KindUpgradeVerified:
		return &UpgradeVerified{}
	case KindUpgradeRolledBack:
		return &UpgradeRolledBack{}
	}
	return nil
}

// Kind returns the event's name in the journal.
func (*AgentStarted) Kind() Kind { return KindAgentStarted }

// Kind returns the event's name in the journal.
func (*AgentStopped) Kind() Kind { return KindAgentStopped }

// Kind returns the event's name in the journal.
func (*Verb) Kind() Kind { return KindVerb }

// Kind returns the event's name in the journal.
func (*Requested) Kind() Kind { return KindRequested }

// Kind returns the event's name in the journal.
func (*Started) Kind() Kind { return KindStarted }

// Kind returns the event's name in the journal.
func (*StartFailed) Kind() Kind { return KindStartFailed }

// Kind returns the event's name in the journal.
func (*Stdin) Kind() Kind { return KindStdin }

// Kind returns the event's name in the journal.
func (*StdinClosed) Kind() Kind { return KindStdinClosed }

// Kind returns the event's name in the journal.
func (*Signalled) Kind() Kind { return KindSignalled }

// Kind returns the event's name in the journal.
func (*Resized) Kind() Kind { return KindResized }

// Kind returns the event's name in the journal.
func (*Deadline) Kind() Kind { return KindDeadline }

// Kind returns the event's name in the journal.
func (*Exited) Kind() Kind { return KindExited }

// Kind returns the event's name in the journal.
func (*Drained) Kind() Kind { return KindDrained }

// Kind returns the event's name in the journal.
func (*Orphaned) Kind() Kind { return KindOrphaned }

// Kind returns the event's name in the journal.
func (*Lost) Kind() Kind { return KindLost }

// Kind returns the event's name in the journal.
func (*Collected) Kind() Kind { return KindCollected }

// Kind returns the event's name in the journal.
func (*Delivered) Kind() Kind { return KindDelivered }

// Kind returns the event's name in the journal.
func (*SessionOpened) Kind() Kind { return KindSessionOpened }

// Kind returns the event's name in the journal.
func (*SessionResumed) Kind() Kind { return KindSessionResumed }

// Kind returns the event's name in the journal.
func (*SessionLeft) Kind() Kind { return KindSessionLeft }

// Kind returns the event's name in the journal.
func (*SessionClosed) Kind() Kind { return KindSessionClosed }

// Kind returns the event's name in the journal.
func (*Snapshot) Kind() Kind { return KindSnapshot }

// Kind returns the event's name in the journal.
func (*Pruned) Kind() Kind { return KindPruned }

// Kind returns the event's name in the journal.
func (*UpgradeRequested) Kind() Kind { return KindUpgradeRequested }

// Kind returns the event's name in the journal.
func (*UpgradeRejected) Kind() Kind { return KindUpgradeRejected }

// Kind returns the event's name in the journal.
func (*UpgradeHandoff) Kind() Kind { return KindUpgradeHandoff }

// Kind returns the event's name in the journal.
func (*UpgradeAdopted) Kind() Kind { return KindUpgradeAdopted }

// Kind returns the event's name in the journal.
func (*UpgradeVerified) Kind() Kind { return KindUpgradeVerified }

// Kind returns the event's name in the journal.
func (*UpgradeRolledBack) Kind() Kind { return KindUpgradeRolledBack }

// Kind returns the name that was read.
func (u *Unknown) Kind() Kind { return u.Name }
