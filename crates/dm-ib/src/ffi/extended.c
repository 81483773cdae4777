/* Verbs that <infiniband/verbs.h> defines inline over the provider's extended table, as plain functions. */

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>

/* Stores the size of the device memory in `bytes` (0 if there is none). Returns 0 or an error number. */
int dm_ib_device_memory(struct ibv_context *context, uint64_t *bytes)
{
	struct ibv_device_attr_ex attr = {};
	int error = ibv_query_device_ex(context, NULL, &attr);

	*bytes = error ? 0 : attr.max_dm_size;
	return error;
}

/* Stores which sizes of PCI atomics the device supports, as masks: fetch-and-add, swap, compare-and-swap. */
int dm_ib_pci_atomics(struct ibv_context *context, uint16_t *sizes)
{
	struct ibv_device_attr_ex attr = {};
	int error = ibv_query_device_ex(context, NULL, &attr);

	sizes[0] = error ? 0 : attr.pci_atomic_caps.fetch_add;
	sizes[1] = error ? 0 : attr.pci_atomic_caps.swap;
	sizes[2] = error ? 0 : attr.pci_atomic_caps.compare_swap;
	return error;
}

/* Returns 1 if the data of requests with this opcode is placed in order. */
int dm_ib_in_order(struct ibv_qp *qp, int opcode)
{
	return ibv_query_qp_data_in_order(qp, (enum ibv_wr_opcode)opcode, 0);
}

/* Allocates device memory that is aligned for atomics. Returns NULL and sets errno if the provider has none. */
struct ibv_dm *dm_ib_alloc_dm(struct ibv_context *context, uint64_t bytes)
{
	struct ibv_alloc_dm_attr attr = { .length = bytes, .log_align_req = 3 };

	return ibv_alloc_dm(context, &attr);
}

int dm_ib_free_dm(struct ibv_dm *dm)
{
	return ibv_free_dm(dm);
}

/* Registers device memory. Its remote addresses are offsets from 0. */
struct ibv_mr *dm_ib_reg_dm(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t bytes)
{
	return ibv_reg_dm_mr(pd, dm, 0, bytes,
			     IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

int dm_ib_write_dm(struct ibv_dm *dm, uint64_t offset, const void *from, uint64_t bytes)
{
	return ibv_memcpy_to_dm(dm, offset, from, bytes);
}
