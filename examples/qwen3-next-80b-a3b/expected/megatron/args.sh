# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 48
  --hidden-size 2048
  --ffn-hidden-size 512
  --num-attention-heads 16
  --group-query-attention
  --num-query-groups 2
  --kv-channels 256
  --attention-output-gate
  --qk-layernorm
  --disable-bias-linear
  --swiglu
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --rotary-base 10000000
  --rotary-percent 0.25
  --max-position-embeddings 262144
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 151936
  --make-vocab-size-divisible-by 128
  --experimental-attention-variant gated_delta_net
  --linear-attention-freq 4
  --linear-num-key-heads 16
  --linear-num-value-heads 32
  --linear-key-head-dim 128
  --linear-value-head-dim 128
  --linear-conv-kernel-dim 4
  # experts
  --num-experts 512
  --moe-ffn-hidden-size 512
  --moe-shared-expert-intermediate-size 512
  --moe-shared-expert-gate
  --moe-router-topk 10
  --moe-router-score-function softmax
  --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 0.001
  --moe-router-dtype fp32
  --moe-router-fusion
  --moe-router-force-load-balancing
  --moe-grouped-gemm
  --moe-permute-fusion
  --moe-token-dispatcher-type alltoall
  # parallelism
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 2
  --context-parallel-size 1
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # pipeline
  --pipeline-model-parallel-layout 'Ett|(tt|)*21,t*3|tL'
  # batch
  --seq-length 8192
  --micro-batch-size 2
  --global-batch-size 1024
  --train-iters 1000
  --eval-iters 0
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # recompute
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
