package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/herdgate/herdgate/stampede"
)

// Product is something that the shop sells.
type Product struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Category string `json:"category"`
	Cents    int    `json:"cents"`
}

// Order is what somebody bought.
type Order struct {
	ID    uint64 `json:"id"`
	Lines []Line `json:"lines"`
}

// Line is a part of an order. It holds the price of the day.
type Line struct {
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
	Cents    int    `json:"cents"`
}

var (
	productBucket = []byte("products")
	orderBucket   = []byte("orders")
)

// catalogue is the shop's database: one file, shared by all pods.
type catalogue struct {
	dir    string
	db     *bbolt.DB
	orders uint64
}

// openCatalogue makes an empty database in a temporary directory, which close removes.
func openCatalogue() (*catalogue, error) {
	dir, err := os.MkdirTemp("", "herdgate-example-")
	if err != nil {
		return nil, err
	}
	// Nothing here has to survive a power cut.
	db, err := bbolt.Open(filepath.Join(dir, "shop.db"), 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &catalogue{dir: dir, db: db}, nil
}

func (c *catalogue) close() error {
	return errors.Join(c.db.Close(), os.RemoveAll(c.dir))
}

// product reads a product.
func (c *catalogue) product(_ context.Context, id string) (p Product, err error) {
	err = c.db.View(func(tx *bbolt.Tx) error {
		p, err = readProduct(tx, id)
		return err
	})
	return p, err
}

// readProduct returns stampede.ErrNotFound for an unknown id, which the guard remembers.
func readProduct(tx *bbolt.Tx, id string) (p Product, err error) {
	data := tx.Bucket(productBucket).Get([]byte(id))
	if data == nil {
		return p, fmt.Errorf("product %q: %w", id, stampede.ErrNotFound)
	}
	return p, json.Unmarshal(data, &p)
}

// setPrice changes what a product costs.
func (c *catalogue) setPrice(_ context.Context, id string, cents int) error {
	return c.db.Update(func(tx *bbolt.Tx) error {
		p, err := readProduct(tx, id)
		if err != nil {
			return err
		}
		p.Cents = cents
		return put(tx.Bucket(productBucket), []byte(id), p)
	})
}

// eachOrder reads and decodes all orders, until ctx ends. The order is fn's until it returns.
func (c *catalogue) eachOrder(ctx context.Context, fn func(*Order)) error {
	return c.db.View(func(tx *bbolt.Tx) error {
		var o Order
		n := 0
		return tx.Bucket(orderBucket).ForEach(func(_, data []byte) error {
			if n++; n%100 == 0 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				// Elsewhere the database is another machine: it is slow, but it does not keep this
				// process from its other work.
				runtime.Gosched()
			}
			if err := json.Unmarshal(data, &o); err != nil {
				return err
			}
			fn(&o)
			return nil
		})
	})
}

// products reads all products, by id.
func (c *catalogue) products() (map[string]Product, error) {
	all := make(map[string]Product, numProducts)
	err := c.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(productBucket).ForEach(func(id, data []byte) error {
			var p Product
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			all[string(id)] = p
			return nil
		})
	})
	return all, err
}

func put(b *bbolt.Bucket, key []byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}
