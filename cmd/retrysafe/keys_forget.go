package main

import (
	"github.com/spf13/cobra"

	"github.com/retrysafe/retrysafe/operator"
)

func (p *program) keysForget(stores *storeFlags) *cobra.Command {
	return p.acting(stores, (*operator.Desk).Forget, true, "forget",
		"The key is free then: the next request with it is a new operation, with effects of its own.",
		&cobra.Command{
			Short: "Free a key whose stored answer is wrong",
			Long: `Frees a key whose operation is over: the next request with it, whatever it asks for,
is a new operation and has effects of its own. It is for a stored answer that is
wrong, such as an error that was kept. Be certain that the old operation had no effect,
or that two are wanted. What is in flight or unknown is refused: settle it first.

Gateways with a cache give the old answer for up to a minute.

` + actHelp,
			Example: `  retrysafe keys forget tenant-a 8e03978e-40d5-43dd-bc93-6894a57f9324 --why "a wrong 500 was kept, nothing was charged"`,
		})
}
