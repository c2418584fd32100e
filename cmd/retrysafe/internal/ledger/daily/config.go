package daily

import (
	"fmt"

	"github.com/retrysafe/retrysafe/cmd/retrysafe/internal/gateway/config"
)

// NewJob returns the job that a gateway's configuration describes.
func NewJob(l *config.Ledger) (*Job, error) {
	j := &Job{
		Name: l.Name, Theirs: l.Feed(), Amounts: l.Amounts, Tolerance: l.Tolerance,
		Directory: l.Report.Directory, Formats: l.Report.Formats,
	}
	var err error
	if j.Ours, err = l.Export(); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", l.Name, err)
	}
	j.Ours.Namespace, j.Ours.Call = config.Namespace, config.UpstreamCall
	if j.Zone, err = l.Zone(); err != nil {
		return nil, fmt.Errorf("ledger %s: time_zone: %w", l.Name, err)
	}
	if j.At, err = l.Clock(); err != nil {
		return nil, fmt.Errorf("ledger %s: at: %w", l.Name, err)
	}
	return j, nil
}
