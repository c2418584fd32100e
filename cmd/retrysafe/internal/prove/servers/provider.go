package servers

import "sync"

// A provider is the other side of outside calls. It outlives every server.
type provider struct {
	mu      sync.Mutex
	known   map[string]string   // the key of a call → its receipt
	effects map[string][]string // the client's key → all receipts that were ever given for it
}

func newProvider() *provider {
	return &provider{known: map[string]string{}, effects: map[string][]string{}}
}

// charge has an effect for a client's key, unless the call's own key is known, and
// returns the receipt.
func (p *provider) charge(client, under, receipt string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first, known := p.known[under]; known {
		return first
	}
	p.known[under] = receipt
	p.effects[client] = append(p.effects[client], receipt)
	return receipt
}

// addTo adds the effects that there are to all.
func (p *provider) addTo(all map[string][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, receipts := range p.effects {
		all[key] = append(all[key], receipts...)
	}
}
