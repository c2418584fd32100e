// Package spec holds the model of the protocol. It is checked by prove/model;
// docs/model.md says what it covers and what came of it.
package spec

import _ "embed"

// Model is the protocol of one key in Promela, the language of the Spin model
// checker. Its head says how to read it.
//
//go:embed retrysafe.pml
var Model string
