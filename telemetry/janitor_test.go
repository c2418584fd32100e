package telemetry_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/retrysafe/retrysafe/janitor"
	"github.com/retrysafe/retrysafe/telemetry"
)

// Each count of what a duty did to records is shown, also one that is added later.
func TestEachCountOfADutyIsShown(t *testing.T) {
	t.Parallel()
	m := telemetry.New(nil)
	newWorld(t, m.Observer()).show(m)
	all := shown(t, m)
	elsewhere := []string{"Passes", "Asked", "ResolverErrors", "Skipped", "Open"} // in series of their own
	for duty, stats := range map[string]any{
		"sweeper": janitor.SweeperStats{}, "reaper": janitor.ReaperStats{}, "reconciler": janitor.ReconcilerStats{},
	} {
		for field := range reflect.TypeOf(stats).Fields() {
			if slices.Contains(elsewhere, field.Name) {
				continue
			}
			result := strings.ToLower(words.Replace(field.Name))
			series := fmt.Sprintf(`retrysafe_janitor_records_total{duty=%q,result=%q}`, duty, result)
			if _, ok := all[series]; !ok {
				t.Errorf("%s of a %s is not shown as %s", field.Name, duty, series)
			}
		}
	}
}

// words puts a low line between the words of a name.
var words = strings.NewReplacer("StillUnknown", "Still_unknown")
