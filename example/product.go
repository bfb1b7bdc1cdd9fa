package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// products are the products of the shop behind a guard. Cheap as they are to read, a write must be seen.
type products struct {
	shop  *catalogue
	guard *stampede.Guard[Product]
}

func newProducts(store stampede.Store, shop *catalogue) (*products, error) {
	guard, err := stampede.New[Product](store, &stampede.Options{
		Name:   "example-product",
		Policy: stampede.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute, NotFoundTTL: 5 * time.Second},
		Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &products{shop, guard}, nil
}

// get returns a product; stampede.ErrNotFound if there is none, whether the database or the store says so.
func (p *products) get(ctx context.Context, id string) (stampede.Result[Product], error) {
	return p.guard.Fetch(ctx, id, func(ctx context.Context, _ *stampede.Load[Product]) (Product, error) {
		return p.shop.product(ctx, id)
	})
}

// errMayBeStale: the write is done, but pods may go on to show what was there before.
var errMayBeStale = errors.New("the price is stored, but the old one may be shown for up to six minutes; repeat the request")

// setPrice writes first and deletes then: a load that began before the Delete cannot bring the old price
// back. Delete and not Set, since two writers may store their prices in one order and call Set in the
// other.
func (p *products) setPrice(ctx context.Context, id string, cents int) error {
	if err := p.shop.setPrice(ctx, id, cents); err != nil {
		return err
	}
	// The price is written: a client that leaves now must not keep the others from seeing it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := retry(ctx, func(ctx context.Context) error { return p.guard.Delete(ctx, id) })
	if err != nil {
		// TTL and StaleFor bound what is left. A service that cannot live with that writes an outbox
		// row in the transaction of the price, and deletes until Delete returns nil.
		return fmt.Errorf("%w: %w", errMayBeStale, err)
	}
	return nil
}
