package config

// Downstream keys of a gateway are derived from these. They must not change: a service, or
// the provider behind it, knows operations by such keys.
const (
	// Namespace is the engine's [retrysafe.Options.Namespace].
	Namespace = "retrysafe gateway"
	// UpstreamCall names the call of the upstream.
	UpstreamCall = "upstream"
)
