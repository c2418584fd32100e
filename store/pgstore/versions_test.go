package pgstore_test

import (
	"testing"

	"github.com/retrysafe/retrysafe/internal/test/crashtest"
	"github.com/retrysafe/retrysafe/internal/test/recoverytest"
	"github.com/retrysafe/retrysafe/internal/test/testservers"
)

// The other tests run on one version of PostgreSQL, Debian's. What could differ between
// versions is held on the oldest and the newest here, and on others if
// RETRYSAFE_POSTGRES_VERSIONS names them: the contract, crashes of the server and of its
// clients, recovery, and the plans of all statements.
func TestVersionsOfPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, version := range testservers.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			shared := func(t *testing.T) string {
				t.Helper()
				return testservers.SharedOn(t, version)
			}
			for name, hold := range map[string]func(t *testing.T){
				"version":                func(t *testing.T) { holdVersion(t, shared(t), version) },
				"contract":               func(t *testing.T) { holdContract(t, version) },
				"contract after a crash": func(t *testing.T) { holdContractAfterACrash(t, version) },
				"plans":                  func(t *testing.T) { holdPlans(t, shared(t)) },
				"server killed": func(t *testing.T) {
					killUnderLoad(t, testservers.NewPostgres(t, &testservers.PostgresOptions{Version: version, InMemory: true}), 3)
				},
				"client killed": func(t *testing.T) { crashtest.KillAroundTheCharge(t, openGarage, shared, 3) },
				"reapers":       func(t *testing.T) { recoverytest.RaceReapers(t, recoveryPlace(t, shared(t))) },
				"sweepers":      func(t *testing.T) { recoverytest.RaceSweepers(t, recoveryPlace(t, shared(t))) },
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					hold(t)
				})
			}
		})
	}
}

func holdVersion(t *testing.T, url, version string) {
	t.Helper()
	if got := one[string](t, connect(t, url), `SELECT (current_setting('server_version_num')::int / 10000)::text`); got != version {
		t.Errorf("the server has version %s, want %s", got, version)
	}
}
