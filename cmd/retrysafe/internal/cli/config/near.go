package config

import (
	"io"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/routing"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/printable"
	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/terminal"
)

// printRoutes prints for each route what it does, and whether the requests that its
// pattern nearly matches are guarded.
func printRoutes(w io.Writer, c *config.Config) error {
	routes := make([]routing.Route, len(c.Routes))
	for i := range c.Routes {
		routes[i] = routing.Route{Match: c.Routes[i].Match, Guards: !c.Routes[i].Off}
	}
	places, err := routing.New(routes, routing.Route{Guards: !c.Defaults.Off})
	if err != nil {
		return err
	}
	rows := terminal.NewTable(w, false, "REQUEST", "IS", "BY")
	for i := range c.Routes {
		match := printable.Text(c.Routes[i].Match)
		rows.Add(match, handling(&c.Routes[i].Settings), match)
		for _, near := range routing.Near(c.Routes[i].Match) {
			is, by := "unguarded", "no route"
			switch place := places.Match(near.Method, near.Host, near.Path); place {
			case routing.None:
			case routing.Default:
				is, by = handling(&c.Defaults), "the defaults"
			default:
				is, by = handling(&c.Routes[place].Settings), printable.Text(c.Routes[place].Match)
			}
			rows.Add("  "+printable.Text(near.String()), is, by)
		}
	}
	return rows.Flush()
}

// handling says what becomes of a request with these settings.
func handling(s *config.Settings) string {
	switch {
	case s.Off:
		return "unguarded"
	case s.Observe:
		return "observed"
	case !s.Required:
		return "guarded if it has a key"
	default:
		return "guarded"
	}
}
