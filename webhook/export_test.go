package webhook

// Answers returns every way in which an event can end, with its status.
func Answers() map[string]int {
	all := make(map[string]int)
	for _, o := range outcomes {
		all[o.String()] = o.result().Status
	}
	for _, p := range problems {
		all[p.code] = p.status
	}
	return all
}

// Known returns how many downstream keys are remembered.
func (in *Intake) Known() int { return len(in.known.young) + len(in.known.old) }
