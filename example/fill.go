package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/bbolt"
)

const (
	numProducts = 300
	sample      = 1000 // orders by which the cost of a scan is estimated
	mostOrders  = 2_000_000
	batchSize   = 10_000
)

var (
	categories = []string{"Kitchen", "Garden", "Books", "Toys", "Office", "Sports", "Music", "Travel"}
	adjectives = []string{"Small", "Quiet", "Folding", "Solid", "Green", "Classic", "Light", "Round", "Soft", "Bright"}
	nouns      = []string{"lamp", "kettle", "bag", "chair", "clock", "box", "radio", "brush", "tent", "ball", "frame", "mug"}
)

// fill adds the products, and as many orders as make a report cost about target on this machine, where
// it runs alone. It returns what it does cost. Every order depends on its number and nothing else.
func (c *catalogue) fill(ctx context.Context, target time.Duration) (cost time.Duration, err error) {
	if err := c.addProducts(); err != nil {
		return 0, err
	}
	if err := c.addOrders(ctx, sample); err != nil {
		return 0, err
	}
	cost, err = c.timeReport(ctx, 25)
	if err != nil {
		return 0, err
	}
	want := uint64(sample * target.Seconds() / cost.Seconds())
	if err := c.addOrders(ctx, min(want, mostOrders)); err != nil {
		return 0, err
	}
	return c.timeReport(ctx, 4)
}

// timeReport returns what a report takes: the least of some tries, since whatever disturbs makes it longer.
func (c *catalogue) timeReport(ctx context.Context, tries int) (least time.Duration, err error) {
	for i := range tries {
		begun := time.Now()
		if _, err := c.report(ctx); err != nil {
			return 0, err
		}
		if took := time.Since(begun); i == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

func (c *catalogue) addProducts() error {
	return c.db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(orderBucket); err != nil {
			return err
		}
		b, err := tx.CreateBucketIfNotExists(productBucket)
		if err != nil {
			return err
		}
		for i := range numProducts {
			p := Product{
				ID:       productID(i),
				Name:     adjectives[i%len(adjectives)] + " " + nouns[i/len(adjectives)%len(nouns)],
				Category: categories[i%len(categories)],
				Cents:    299 + i*7919%9700,
			}
			if err := put(b, []byte(p.ID), p); err != nil {
				return err
			}
		}
		return nil
	})
}

func productID(i int) string { return fmt.Sprintf("p%03d", i) }

// addOrders adds orders until there are total.
func (c *catalogue) addOrders(ctx context.Context, total uint64) error {
	for c.orders < total {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		upto := min(c.orders+batchSize, total)
		err := c.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket(orderBucket)
			b.FillPercent = 1 // keys come in order
			for id := c.orders; id < upto; id++ {
				if err := put(b, binary.BigEndian.AppendUint64(nil, id), makeOrder(id)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.orders = upto
	}
	return nil
}

func makeOrder(id uint64) Order {
	rng := rand.New(rand.NewPCG(1, id))
	o := Order{ID: id, Lines: make([]Line, 1+rng.IntN(4))}
	for i := range o.Lines {
		p := int(numProducts * rng.Float64() * rng.Float64()) // low numbers are popular
		o.Lines[i] = Line{productID(p), 1 + rng.IntN(3), 299 + p*7919%9700}
	}
	return o
}
